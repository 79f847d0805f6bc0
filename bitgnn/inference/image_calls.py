"""Calls of frozen models of images: checks of the input, packing, errors that name a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from bitgnn.bits import BitImages, BitTensor
from bitgnn.inference.executable import Executable, Write

if TYPE_CHECKING:
    from bitgnn.inference.frozen_model import FrozenModel

Takes = Literal["nodes", "images", "rows", "flattened"]
"""Features of nodes or any other rows; images ``[N, C, H, W]``; ``[N, K]``; images as rows."""

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)
OF_IMAGES = ("pack_images", "pack_patches")
"""Operators that pack images, not rows."""
MEMORY = ("out of memory", "CUDA error", "CUDA driver error")
"""Words of errors that have nothing to do with a layer's shapes."""


def run_images(model: FrozenModel, x: Any, graph: None, write: Write | None = None) -> Any:
    """Scores of images; errors name the layer they come from."""
    check_images("FrozenModel", model, x)
    with torch.inference_mode() if torch.compiler.is_compiling() else torch.no_grad():
        executable, values, _ = model._start(x)
        if torch.compiler.is_compiling():
            return executable.run(values, ())
        return _run(executable, values, write)


def _run(executable: Executable, values: list[Any], write: Write | None) -> Any:
    given = [values[register] for register in executable.inputs]
    try:
        return executable.run(values, (), write)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        message = str(error)
        is_of_machine = isinstance(error, torch.OutOfMemoryError | NotImplementedError)
        if is_of_machine or any(text in message for text in MEMORY):
            raise
        layer = executable.failing_layer(given)
        raise ValueError(f"FrozenModel: layer {layer!r}: {message}") from error


def check_images(name: str, model: FrozenModel, x: Any) -> None:
    """Refuse images of another dtype or shape than the model takes."""
    if isinstance(x, BitImages | BitTensor):
        _check_packed(name, model, x)
        return
    if not isinstance(x, Tensor) or x.dtype not in DTYPES or x.layout != torch.strided:
        got = f"{x.dtype}, {x.layout}" if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(
            f"{name}: x must be a dense tensor of {[str(dtype) for dtype in DTYPES]} or the "
            f"result of pack_features, got {got}"
        )
    channels = model.in_channels
    row = f"[N, {channels}]"
    fits, shape = {
        "images": (x.dim() == 4, f"[N, {channels}, H, W]"),
        "rows": (x.dim() == 2, row),
        "flattened": (x.dim() >= 2, f"{row} or images of as many values"),
    }[model.takes]
    if fits and channels:
        size = x.shape[1:].numel() if model.takes == "flattened" else x.size(1)
        fits = size == channels
    if not fits:
        raise ValueError(f"{name}: x must be {shape}, got {list(x.shape)}")


def _check_packed(name: str, model: FrozenModel, x: BitImages | BitTensor) -> None:
    if model.program.entry is None:
        raise ValueError(f"{name}: x must be floats, {model._why_floats()}")
    of_images = model._entry_call.kind in OF_IMAGES
    size = x.channels if isinstance(x, BitImages) else x.size
    if isinstance(x, BitImages) != of_images or size != model.packed_channels:
        form = "BitImages" if of_images else "a BitTensor"
        unit = "channels" if of_images else "features"
        raise ValueError(
            f"{name}: packed x must be {form} of {model.packed_channels} {unit}, got "
            f"{type(x).__name__} of {size}"
        )


def check_to_pack(name: str, model: FrozenModel, x: Any, layout: str) -> None:
    """Refuse images, or a layout, that cannot be packed."""
    if isinstance(x, BitTensor) or not isinstance(x, Tensor):
        raise TypeError(f"{name}: x must be a tensor of numbers, got {type(x).__name__}")
    check_images(name, model, x)
    if layout not in ("auto", "dense"):
        raise ValueError(f"{name}: layout must be 'auto' or 'dense', got {layout!r}")
