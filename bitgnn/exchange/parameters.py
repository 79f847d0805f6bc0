r"""Export and import of the parameters of trained binary networks.

A folder holds two files, nothing pickled. ``parameters.json`` is an object:

- ``format``: ``"bitgnn.parameters"``, ``version``: 2, ``network``: name of the model's class;
- ``layers``: in the order of the model's modules, each with ``name`` (module name), ``kind`` and
  what the table says;
- ``tensors``: ``file``, ``bytes`` and ``sha256`` of the safetensors file, whose tensors are named
  ``<layer>.<entry>``;
- ``sha256``: of all the other entries as JSON with sorted keys and no spaces.

``"convolution"``
    JSON: ``weight`` [O, C / groups, kh, kw], ``stride``, ``padding``, ``dilation``, ``groups``,
    ``padding_mode``, ``input_step`` (null but in a first layer), ``scale`` and ``bias`` (whether
    there is one), and ``padding_value`` where it is -1. Tensors: ``words`` int32
    [O, kh, kw, ceil(C / groups / 32)], ``scale`` and ``bias`` float32 [O].
``"linear"``
    JSON: ``weight`` [O, K], ``input_step``, ``scale``, ``bias``. Tensors: ``words`` int32
    [O, ceil(K / 32)], ``scale`` and ``bias`` float32 [O].
``"threshold"``
    A batch norm before signs. JSON: ``channels`` C. Tensors: ``threshold`` float32 [C] and
    ``turned`` bool [C]: the sign of channel c is +1 where ``(v >= threshold[c]) != turned[c]``,
    ``v`` being what the norm would take.
``"affine"``
    The batch norm after the last layer. JSON: ``channels`` C. Tensors: ``scale`` and ``bias``
    float32 [C]: the score is ``scale * v + bias``.
``"values"``
    A module without a binary form, as it is. JSON: ``state``, dtype and shape of each tensor.

Bit ``k`` of word ``w`` is weight ``32 * w + k`` of a row, or channel ``32 * w + k`` at a tap of the
kernel: 1 for +1, 0 for -1 and after the end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bitgnn._checksummed import migrated, read_folder, write_folder
from bitgnn._files import FileError
from bitgnn.bits import BitTensor
from bitgnn.bits.tensor import BitImages, words_for
from bitgnn.exchange.norms import (
    NORMS,
    affine_of,
    can_hold,
    norm_roles,
    set_affine,
    set_threshold,
    threshold_of,
)
from bitgnn.nn import BinaryConv2d, BinaryLinear
from bitgnn.nn.binary_product import BinaryProduct
from bitgnn.quantize import canonical_row_scale

Layer = dict[str, Any]
"""A layer in the JSON."""
Tensors = dict[str, Tensor]

FORMAT = "bitgnn.parameters"
VERSION = 2
DESCRIPTION_FILE = "parameters.json"
PREFIX = "parameters"
CONVOLUTION_NUMBERS = ("stride", "padding", "dilation", "groups", "padding_mode")
BISECTION_STEPS = 64
ATTEMPTS = 16


def export_parameters(model: nn.Module, path: str | os.PathLike[str]) -> Path:
    """Write the parameters of a trained binary network, as an inference needs them.

    The module's documentation describes the files: +-1 weights in packed words, one threshold for
    each channel of a batch norm before signs, scale and bias of the one after the last layer.

    Args:
        model: a network of :class:`bitgnn.nn.BinaryConv2d` and ``BinaryLinear`` that torch.fx can
            trace; unchanged.
        path: folder to make, or to overwrite the parameters in.

    Returns:
        The folder.

    Raises:
        TypeError: ``model`` is no module.
        ValueError: it has no binary layer, cannot be traced, or a layer holds NaN or infinity or a
            batch norm without statistics; the layer is named.
        OSError: the folder cannot be written.
    """
    layers = _describe("export_parameters", model)
    tensors: dict[str, Tensor] = {}
    for layer in layers:
        name = layer["name"]
        try:
            found = _exported(layer, model.get_submodule(name))
        except ValueError as error:
            raise ValueError(f"export_parameters: layer {name!r}: {error}") from error
        tensors |= {f"{name}.{entry}": tensor.detach() for entry, tensor in found.items()}
    network = type(model).__name__
    description = {"format": FORMAT, "version": VERSION, "network": network, "layers": layers}
    write_folder(Path(path), DESCRIPTION_FILE, PREFIX, description, tensors)
    return Path(path)


def import_parameters(model: nn.Module, path: str | os.PathLike[str]) -> nn.Module:
    """Read parameters into a model of the same structure, which then predicts the same.

    Weights become +-1 (times their scale, where the layer has one), batch norms before signs
    compare with the thresholds, to the bit. The model is changed only once everything fits.

    Args:
        model: of the structure that was exported, on any device.
        path: folder of :func:`export_parameters`.

    Returns:
        ``model``.

    Raises:
        TypeError: ``model`` is no module.
        FileNotFoundError: there are no parameters at ``path``.
        FileError: the files are truncated or altered; a ``ValueError`` that names the file.
        ValueError: they belong to a network of another structure; the first layer that differs is
            named.
    """
    layers = _describe("import_parameters", model)
    description, tensors = read_folder(Path(path), DESCRIPTION_FILE, PREFIX, _checked)
    _check_structure(layers, description["layers"], description["network"])
    assignments: list[Callable[[], None]] = []
    for layer in layers:
        name = layer["name"]
        try:
            found = _taken(tensors, layer)
            assignments.append(_importer(layer, model.get_submodule(name), found))
        except ValueError as error:
            raise ValueError(f"import_parameters: layer {name!r}: {error}") from error
    with torch.no_grad():
        for assign in assignments:
            assign()
    return model


def _checked(description: dict[str, Any], file: Path) -> dict[str, Any]:
    """A description of the present version, every entry that is relied on checked."""
    if description.get("format") != FORMAT:
        raise FileError(f"{file}: does not describe bitgnn's parameters")
    description = migrated(description, "version", VERSION, {}, file)
    layers = description.get("layers")
    is_named = isinstance(description.get("network"), str) and isinstance(layers, list)
    entries = layers if isinstance(layers, list) else ()
    if not is_named or not all(isinstance(e, dict) and type(e.get("name")) is str for e in entries):
        raise FileError(f"{file}: damaged parameters, names no network or no layers")
    return description


def _check_structure(layers: Sequence[Layer], written: Sequence[Layer], network: str) -> None:
    """Refuse another network's layers, naming the first that differs."""
    for mine, theirs in zip(layers, written, strict=False):
        if mine["name"] != theirs["name"]:
            raise ValueError(
                f"import_parameters: the model has a layer {mine['name']!r} where the parameters "
                f"({network}) have {theirs['name']!r}"
            )
        for key in ("kind", *sorted(mine.keys() | theirs.keys())):
            if mine.get(key) != theirs.get(key):
                raise ValueError(
                    f"import_parameters: layer {mine['name']!r}: {key} is {mine.get(key)!r} in the "
                    f"model and {theirs.get(key)!r} in the parameters ({network})"
                )
    if len(layers) != len(written):
        extra = max(layers, written, key=len)[min(len(layers), len(written))]["name"]
        owner = "model" if len(layers) > len(written) else "parameters"
        raise ValueError(f"import_parameters: only the {owner} have a layer {extra!r} ({network})")


def _taken(tensors: dict[str, Tensor], layer: Layer) -> dict[str, Tensor]:
    """A layer's tensors, of the dtypes and shapes that the JSON stands for."""
    found = {}
    for entry, (dtype, shape) in _entries(layer).items():
        tensor = tensors.get(f"{layer['name']}.{entry}")
        if tensor is None:
            raise ValueError(f"the parameters lack its {entry}")
        got = _dtype(tensor), list(tensor.shape)
        if got != (dtype, list(shape)):
            raise ValueError(f"{entry} must be {dtype} {list(shape)}, got {got[0]} {got[1]}")
        found[entry] = tensor
    return found


def _describe(function: str, model: nn.Module) -> list[Layer]:
    """JSON entries of all layers, in the order of the model's modules."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"{function}: model must be a torch.nn.Module, got {type(model).__name__}")
    if not any(isinstance(m, BinaryConv2d | BinaryLinear) for m in model.modules()):
        is_of_graphs = any(isinstance(m, BinaryProduct) for m in model.modules())
        raise ValueError(
            f"{function}: model must be a network of images, with BinaryConv2d or BinaryLinear "
            f"layers, got {type(model).__name__}, which has none"
            + (" (a model of graph layers is kept by freeze() and save())" if is_of_graphs else "")
        )
    roles = norm_roles(function, model)
    layers = ({"name": n, **_described(m, roles.get(n))} for n, m in model.named_modules())
    return [layer for layer in layers if "kind" in layer]


def _described(module: nn.Module, role: str | None) -> Layer:
    """Entries of one module; empty if it holds no tensors."""
    if isinstance(module, BinaryConv2d | BinaryLinear):
        is_convolution = isinstance(module, BinaryConv2d)
        layer: Layer = {
            "kind": "convolution" if is_convolution else "linear",
            "weight": list(module.weight.shape),
            "input_step": module.input_step,
            "scale": module.scale,
            "bias": module.bias is not None,
        }
        if is_convolution:
            numbers = {name: getattr(module, name) for name in CONVOLUTION_NUMBERS}
            layer |= {n: list(v) if isinstance(v, tuple) else v for n, v in numbers.items()}
            if module.padding_value:  # files are older than it
                layer["padding_value"] = module.padding_value
        return layer
    if isinstance(module, NORMS) and role is not None and can_hold(module):
        return {"kind": role, "channels": module.num_features}
    state = {n: [_dtype(t), list(t.shape)] for n, t in _state(module).items()}
    return {"kind": "values", "state": state} if state else {}


def _state(module: nn.Module) -> Tensors:
    """A module's own parameters and persistent buffers."""
    own: dict[str, Tensor | None] = {**module._parameters, **module._buffers}
    left_out = module._non_persistent_buffers_set
    return {n: t for n, t in own.items() if t is not None and n not in left_out}


def _dtype(tensor: Tensor) -> str:
    """Name of a dtype in the JSON: ``float32``."""
    return str(tensor.dtype).removeprefix("torch.")


def _entries(layer: Layer) -> dict[str, tuple[str, list[int]]]:
    """Dtype and shape of each tensor of a layer."""
    kind = layer["kind"]
    if kind == "values":
        return {name: (dtype, shape) for name, (dtype, shape) in layer["state"].items()}
    if kind == "threshold":
        shape = [layer["channels"]]
        return {"threshold": ("float32", shape), "turned": ("bool", shape)}
    if kind == "affine":
        return {name: ("float32", [layer["channels"]]) for name in ("scale", "bias")}
    outputs, inputs, *kernel = layer["weight"]
    vectors = {name: ("float32", [outputs]) for name in ("scale", "bias") if layer[name]}
    return {"words": ("int32", [outputs, *kernel, words_for(inputs)]), **vectors}


@torch.no_grad()
def _exported(layer: Layer, module: Any) -> Tensors:
    """The tensors of a layer."""
    kind = layer["kind"]
    if kind == "threshold":
        return threshold_of(module)
    if kind == "values":
        return _state(module)
    if kind == "affine":
        found = affine_of(module)
    else:
        weight = module.weight.detach()
        _check_finite({"weight": weight})
        pack = BitImages if kind == "convolution" else BitTensor
        found = {"words": pack.from_float(weight.cpu()).words}
        if layer["scale"]:
            found["scale"] = canonical_row_scale(weight.flatten(1)).float()
        if layer["bias"]:
            found["bias"] = module.bias.float()
    _check_finite({n: t for n, t in found.items() if t.is_floating_point()})
    return found


def _check_finite(tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} must be finite, got NaN or infinity")


def _importer(layer: Layer, module: Any, found: Tensors) -> Callable[[], None]:
    """Function that writes a layer's tensors into its module, after checking that they fit."""
    state = _state(module)
    device = next(iter(state.values())).device
    found = {name: tensor.to(device) for name, tensor in found.items()}
    kind = layer["kind"]
    if kind == "threshold":
        if bool(found["threshold"].isnan().any()):
            raise ValueError("threshold must not be NaN")
        return lambda: set_threshold(module, found["threshold"], found["turned"])
    if kind == "affine":
        _check_finite(found)
        return lambda: set_affine(module, found["scale"], found["bias"])
    if kind != "values":
        _check_finite({n: t for n, t in found.items() if n != "words"})
        words, scale = found.pop("words"), found.pop("scale", None)
        found["weight"] = _weight(layer, words, scale, module.weight)

    def write() -> None:
        for name, tensor in found.items():
            state[name].copy_(tensor)

    return write


def _weight(layer: Layer, words: Tensor, scale: Tensor | None, like: Tensor) -> Tensor:
    """Weights with the signs of ``words``, whose mean magnitude is ``scale`` to the bit."""
    packed = BitImages if layer["kind"] == "convolution" else BitTensor
    signs = packed(words.cpu(), layer["weight"][1]).to_float().contiguous().to(like.device)
    if scale is None:
        return signs.to(like.dtype)
    if bool((scale < 0).any()):
        raise ValueError("scale must not be negative")
    return _with_mean(signs.flatten(1), scale, like.dtype).view_as(signs)


def _with_mean(signs: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows ``+-scale``, entries moved a little until the mean is ``scale`` to the bit.

    The mean of equal numbers may be rounded to a neighbour of theirs. It rises with the first
    entry, so bisection finds where it is right; where ties in the sum pass over the value, the
    others are spread over the next few floats.
    """
    result = torch.empty_like(signs, dtype=dtype)
    missing = torch.ones_like(scale, dtype=torch.bool)
    place = torch.arange(signs.size(1), device=signs.device)
    for attempt in range(ATTEMPTS):
        rows = (scale.unsqueeze(1) * signs).to(dtype)
        if attempt:
            rows *= 1 + (place * attempt % 7) * torch.finfo(dtype).eps
        low, high = torch.zeros_like(scale), 4 * scale
        for _ in range(BISECTION_STEPS):
            middle = (low + high) / 2
            rows[:, 0] = (middle * signs[:, 0]).to(dtype)
            below = canonical_row_scale(rows).float() < scale
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        rows[:, 0] = (high * signs[:, 0]).to(dtype)
        found = missing & (canonical_row_scale(rows).float() == scale)
        result[found] = rows[found]
        missing = missing & ~found
        if not bool(missing.any()):
            return result
    raise ValueError(f"scale has values that no {dtype} weights have as their mean")
