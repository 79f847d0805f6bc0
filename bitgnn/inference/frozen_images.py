"""FrozenImages: a trained convolutional or fully connected binary network on packed images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from bitgnn.bits import BitImages, BitTensor
from bitgnn.inference.bound_program import FeatureForm
from bitgnn.inference.checks import SIDE
from bitgnn.inference.executable import Executable, Write
from bitgnn.inference.frozen import FreezeReport
from bitgnn.inference.frozen_model import FrozenModel
from bitgnn.inference.own_call import hand_out
from bitgnn.inference.program import Program
from bitgnn.inference.steps.calls import FloatCall

Takes = Literal["images", "rows", "flattened"]
"""What a model reads: ``[N, C, H, W]``, ``[N, K]``, or either, its images as rows."""

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)
OF_IMAGES = ("pack_images", "pack_patches")
"""Operators that pack images, not rows."""
MEMORY = ("out of memory", "CUDA error", "CUDA driver error")
"""What errors say that have nothing to do with a layer's shapes."""


class FrozenImages(FrozenModel):
    """Inference form of a binary network of images: packed activations, thresholds, integer sums.

    It takes images of any height and width that the trained model takes.

    Args:
        program: the calls; these and the errors are as those of :class:`FrozenModel`.
        tensors: what they read, by name.
        report: what freezing did.
        calls: modules and functions outside of the known steps.
        features: ``"packed"`` for a model that refuses floats.
        takes: what the model reads.
    """

    kind = "images"
    takes: Takes

    def __init__(
        self,
        program: Program,
        tensors: Mapping[str, Tensor],
        report: FreezeReport,
        calls: Sequence[FloatCall] = (),
        features: FeatureForm = "floats",
        takes: Takes = "images",
    ) -> None:
        if takes not in get_args(Takes):
            raise ValueError(
                f"FrozenImages: takes must be one of {list(get_args(Takes))}, got {takes!r}"
            )
        self.__dict__["takes"] = takes  # before there is a module
        super().__init__(program, tensors, (), report, calls, features)

    def _example_shape(self) -> Callable[[int], tuple[int, ...]]:
        channels = self.program.in_channels
        side = (SIDE, SIDE) if self.takes == "images" else ()
        return lambda rows: (rows, channels, *side)

    def forward(  # type: ignore[override]
        self, x: Any, adjacency: Any = None, *, out: Tensor | None = None
    ) -> Tensor:
        """Scores of each image.

        Args:
            x: ``[N, C, H, W]`` (or ``[N, K]``) float32, float16, bfloat16 or uint8 in any memory
                format, contiguous and channels_last ones being read in place; or the result of
                :meth:`pack_features`, and only that for a model frozen with
                ``features="packed"``.
            adjacency: nothing: there is no graph.
            out: the scores are written there at last; its shape, dtype and device must be theirs.

        Returns:
            ``[N, out_channels]`` float32 scores, or int64 ``[N]`` for a model that hands out
            classes; without gradients.

        Raises:
            TypeError: ``x`` has another dtype or is something else.
            ValueError: channels, features or devices do not fit, an image is smaller than the
                kernel of a layer (the message names it), packed images are needed, or ``out`` does
                not fit.
        """
        if adjacency is not None:
            raise ValueError("FrozenImages: adjacency must be None, this model has no graph layers")
        result: Tensor = self._run_recorded(x, None, self._run_checked)
        return result if out is None else hand_out("FrozenImages", result, out)

    def _run_checked(self, x: Any, graph: None, write: Write | None = None) -> Any:
        self._check_input("FrozenImages", x)
        with torch.inference_mode() if torch.compiler.is_compiling() else torch.no_grad():
            executable, values, _ = self._start(x)
            if torch.compiler.is_compiling():
                return executable.run(values, ())
            return self._run(executable, values, write)

    def _run(self, executable: Executable, values: list[Any], write: Write | None) -> Any:
        """Run call by call; errors name the layer they come from."""
        given = [values[register] for register in executable.inputs]
        try:
            return executable.run(values, (), write)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            message = str(error)
            is_of_machine = isinstance(error, torch.OutOfMemoryError | NotImplementedError)
            if is_of_machine or any(text in message for text in MEMORY):
                raise
            layer = executable.failing_layer(given)
            raise ValueError(f"FrozenImages: layer {layer!r}: {message}") from error

    def _check_input(self, name: str, x: Any) -> None:
        if isinstance(x, BitImages | BitTensor):
            self._check_packed(name, x)
            return
        if not isinstance(x, Tensor) or x.dtype not in DTYPES or x.layout != torch.strided:
            got = f"{x.dtype}, {x.layout}" if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(
                f"{name}: x must be a dense tensor of {[str(dtype) for dtype in DTYPES]} or the "
                f"result of pack_features, got {got}"
            )
        row = f"[N, {self.in_channels}]"
        fits, shape = {
            "images": (x.dim() == 4, f"[N, {self.in_channels}, H, W]"),
            "rows": (x.dim() == 2, row),
            "flattened": (x.dim() >= 2, f"{row} or images of as many values"),
        }[self.takes]
        if fits and self.in_channels:
            size = x.shape[1:].numel() if self.takes == "flattened" else x.size(1)
            fits = size == self.in_channels
        if not fits:
            raise ValueError(f"{name}: x must be {shape}, got {list(x.shape)}")

    def _check_packed(self, name: str, x: BitImages | BitTensor) -> None:
        if self.program.entry is None:
            raise ValueError(f"{name}: x must be floats, {self._why_floats()}")
        of_images = self._entry_call.kind in OF_IMAGES
        size = x.channels if isinstance(x, BitImages) else x.size
        if isinstance(x, BitImages) != of_images or size != self.packed_channels:
            form = "BitImages" if of_images else "a BitTensor"
            unit = "channels" if of_images else "features"
            raise ValueError(
                f"{name}: packed x must be {form} of {self.packed_channels} {unit}, got "
                f"{type(x).__name__} of {size}"
            )

    @torch.inference_mode()
    def pack_features(  # type: ignore[override]
        self, x: Any, check_finite: bool = False, layout: str = "auto"
    ) -> BitImages | BitTensor:
        """Binarise and pack raw images once for many calls.

        Args:
            x: images or rows as :meth:`forward` takes them.
            check_finite: raise where ``x`` holds NaN or infinity.
            layout: ``"auto"`` or ``"dense"``: words.

        Returns:
            The bits.

        Raises:
            TypeError: ``x`` has another dtype.
            ValueError: shapes do not fit, ``x`` is not finite, there is no such layout, or the
                first layer does not binarise.
        """
        name = "FrozenImages.pack_features"
        if isinstance(x, BitTensor) or not isinstance(x, Tensor):
            raise TypeError(f"{name}: x must be a tensor of numbers, got {type(x).__name__}")
        self._check_input(name, x)
        if layout not in ("auto", "dense"):
            raise ValueError(f"{name}: layout must be 'auto' or 'dense', got {layout!r}")
        words, *_ = self._packed(name, x, check_finite)
        if self._entry_call.kind in OF_IMAGES:
            return BitImages(words, self._packed_size)
        return BitTensor._trusted(words, self._packed_size)

    def _why_floats(self) -> str:
        return "since a layer of this model reads more of its images than one bit of each value"

    def _own_description(self) -> dict[str, Any]:
        return {"takes": self.takes}

    @classmethod
    def _own_arguments(cls, description: Mapping[str, Any]) -> dict[str, Any]:
        return {"takes": description["takes"]}
