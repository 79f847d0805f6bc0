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
    there is one). Tensors: ``words`` int32 [O, kh, kw, ceil(C / groups / 32)], ``scale`` and
    ``bias`` float32 [O].
``"linear"``
    JSON: ``weight`` [O, K], ``input_step``, ``scale``, ``bias``. Tensors: ``words`` int32
    [O, ceil(K / 32)], ``scale`` and ``bias`` float32 [O].
``"threshold"``
    A batch norm in front of signs. JSON: ``channels`` C. Tensors: ``threshold`` float32 [C] and
    ``turned`` bool [C]: the sign of channel c is +1 where ``(v >= threshold[c]) != turned[c]``,
    ``v`` being what the norm would take.
``"affine"``
    The batch norm behind the last layer. JSON: ``channels`` C. Tensors: ``scale`` and ``bias``
    float32 [C]: the score is ``scale * v + bias``.
``"values"``
    A module without a binary form, as it is. JSON: ``state``, dtype and shape of each tensor.

Bit ``k`` of word ``w`` is weight ``32 * w + k`` of a row, or channel ``32 * w + k`` at a tap of the
kernel: 1 for +1, 0 for -1 and behind the end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bitgnn._checksummed import check_format, read_folder, write_folder
from bitgnn._files import FileError
from bitgnn.exchange.layers import Layer, describe, entries, exported, importer

FORMAT = "bitgnn.parameters"
VERSION = 2
DESCRIPTION_FILE = "parameters.json"
PREFIX = "parameters"


def write_files(
    folder: Path, network: str, layers: list[dict[str, Any]], tensors: dict[str, Tensor]
) -> None:
    """Write both files, the JSON last, so that the folder holds the old network or the new one.

    Args:
        folder: made where it is missing.
        network: name of the network's class.
        layers: what the JSON says of each layer.
        tensors: by name ``layer.entry``.

    Raises:
        OSError: the folder cannot be written.
    """
    description = {"format": FORMAT, "version": VERSION, "network": network, "layers": layers}
    write_folder(folder, DESCRIPTION_FILE, PREFIX, description, tensors)


def read_files(folder: Path) -> tuple[str, list[dict[str, Any]], dict[str, Tensor]]:
    """The network's name, its layers and their tensors, as they were written.

    Raises:
        FileNotFoundError: there are no parameters in ``folder``.
        FileError: the files are truncated, altered or of an unknown version.
    """
    description, tensors = read_folder(folder, DESCRIPTION_FILE, "parameters", _check)
    return description["network"], description["layers"], tensors


def _check(description: dict[str, Any], file: Path) -> None:
    """Refuse what is no description of the present version with every entry that is relied on."""
    if description.get("format") != FORMAT:
        raise FileError(f"{file}: does not describe bitgnn's parameters")
    check_format(description, "version", VERSION, file)
    layers = description.get("layers")
    if (
        not isinstance(description.get("network"), str)
        or not isinstance(layers, list)
        or not all(
            isinstance(layer, dict) and isinstance(layer.get("name"), str) for layer in layers
        )
    ):
        raise FileError(f"{file}: damaged parameters, names no network or no layers")


def export_parameters(model: nn.Module, path: str | os.PathLike[str]) -> Path:
    """Write the parameters of a trained binary network, as an inference needs them.

    The module's documentation describes the files: +-1 weights in packed words, one threshold for
    each channel of a batch norm in front of signs, scale and bias of the one behind the last layer.

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
    layers = describe("export_parameters", model)
    tensors: dict[str, Tensor] = {}
    for layer in layers:
        name = layer["name"]
        try:
            found = exported(layer, model.get_submodule(name))
        except ValueError as error:
            raise ValueError(f"export_parameters: layer {name!r}: {error}") from error
        tensors |= {f"{name}.{entry}": tensor.detach() for entry, tensor in found.items()}
    folder = Path(path)
    write_files(folder, type(model).__name__, layers, tensors)
    return folder


def import_parameters(model: nn.Module, path: str | os.PathLike[str]) -> nn.Module:
    """Read parameters into a model of the same structure, which then predicts the same.

    Weights become +-1 (times their scale, where the layer has one), batch norms in front of signs
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
    layers = describe("import_parameters", model)
    network, written, tensors = read_files(Path(path))
    _check_structure(layers, written, network)
    assignments: list[Callable[[], None]] = []
    for layer in layers:
        name = layer["name"]
        try:
            found = _taken(tensors, layer)
            assignments.append(importer(layer, model.get_submodule(name), found))
        except ValueError as error:
            raise ValueError(f"import_parameters: layer {name!r}: {error}") from error
    with torch.no_grad():
        for assign in assignments:
            assign()
    return model


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
    for entry, (dtype, shape) in entries(layer).items():
        tensor = tensors.get(f"{layer['name']}.{entry}")
        if tensor is None:
            raise ValueError(f"the parameters lack its {entry}")
        got = str(tensor.dtype).removeprefix("torch."), list(tensor.shape)
        if got != (dtype, list(shape)):
            raise ValueError(f"{entry} must be {dtype} {list(shape)}, got {got[0]} {got[1]}")
        found[entry] = tensor
    return found
