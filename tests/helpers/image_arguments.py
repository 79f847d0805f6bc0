"""Random arguments of the operators of images."""

from typing import Any

import torch
from draws import Draws

from bitgnn.ops.reference.conv import conv_add, conv_bbb


class ImageArguments(Draws):
    """Arguments of convolutions, pools and patches."""

    def _conv_arguments(self, name: str, k: int, m: int, optional: bool | None) -> dict[str, Any]:
        """Arguments of a convolution of about k channels with about m outputs."""
        groups = (1, 1, 2, 3)[self.integer(4)]
        size, outputs = max(1, k // groups), groups * max(1, m // groups)
        kernel = [1 + self.integer(3), 1 + self.integer(4)]
        dilation = [1 + self.integer(2), 1 + self.integer(2)]
        padding = [self.integer(3) for _ in range(4)]
        spans = [d * (s - 1) + 1 for d, s in zip(dilation, kernel, strict=True)]
        pads = padding[0] + padding[1], padding[2] + padding[3]
        image = [max(1, s - p) + self.integer(7) for s, p in zip(spans, pads, strict=True)]
        given: dict[str, Any] = {
            "x": self.images(self.integer(4), groups * size, *image),
            "w": self.images(outputs, size, *kernel),
            "channels": groups * size,
            "stride": [1 + self.integer(3), 1 + self.integer(2)],
            "padding": padding,
            "dilation": dilation,
            "groups": groups,
        }
        if name == "conv_bbf":
            given["integer"] = bool(self.integer(2)) if optional is None else False
        for vector in ("w_scale", "bias", "threshold", "flip"):
            if name == "conv_bbf" and (given["integer"] or vector in ("threshold", "flip")):
                continue
            if bool(self.integer(2)) if optional is None else optional:
                drawn = self.floats(outputs)
                given[vector] = drawn > 0 if vector == "flip" else drawn
        return given

    def _pooled_arguments(self, given: dict[str, Any], optional: bool | None) -> dict[str, Any]:
        """The same with a window over the convolution's images, where it is drawn."""
        if self.integer(2) if optional is None else optional:
            _, height, width, words = conv_bbb(**given).shape
            given["pool"] = [1 + self.integer(min(3, size)) for size in (height, width)]
            if self.integer(2) or optional:
                given["pool_flip"] = self.bits(1, given["w"].size(0)).flatten()
                assert given["pool_flip"].numel() == words
        return given

    def _conv_add_arguments(self, k: int, m: int, optional: bool | None) -> dict[str, Any]:
        """Arguments of a convolution with an addend of fewer or as many channels."""
        given = self._conv_arguments("conv_bbb", k, m, optional)
        given = {key: given[key] for key in given if key not in ("w_scale", "bias")}
        if bool(self.integer(2)) if optional is None else optional:
            size = conv_add(**given)[0].shape
            step = given["addend_stride"] = [1 + self.integer(2), 1 + self.integer(3)]
            rows, columns = (
                max(0, (size[1 + i] - 1) * step[i] + 1 + self.integer(step[i])) for i in range(2)
            )
            wide = bool(self.integer(2))
            given["addend"] = torch.randint(
                -32768, 32768, (size[0], rows, columns, self.integer(size[3] + 1)),
                generator=self.generator, dtype=torch.int32 if wide else torch.int16,
            ) // (1 + 999 * self.integer(2))  # fmt: skip
        given["wide"] = bool(self.integer(2))
        kept = self.integer(3)
        return given | {"sums": kept != 1, "bits": kept != 2}

    def _fixed_conv_arguments(
        self, name: str, k: int, m: int, optional: bool | None
    ) -> dict[str, Any]:
        """Arguments of a first layer; its floats span the range of the fixed point and beyond."""
        given = self._conv_arguments(name.replace("_f", "_b"), k, m, optional)
        images, height, width, _ = given.pop("x").shape
        channels, groups = given.pop("channels"), given.pop("groups")
        outputs, kernel = given["w"].size(0), given["w"].shape[1:3]
        given["w"] = self.images(outputs, channels, *kernel) if groups > 1 else given["w"]
        shape = images, height, width, channels
        last = bool(self.integer(2))
        kind = self.integer(4)
        if kind == 0:
            x = torch.randint(256, shape, generator=self.generator, dtype=torch.uint8)
            given["step"] = 1.0
        else:
            given["step"] = 2.0 ** (self.integer(20) - 16)
            dtype = (torch.float32, torch.float16, torch.bfloat16)[kind - 1]
            x = (self.floats(*shape) * 2.0 ** self.integer(6)).to(dtype)
        x = x.permute(0, 3, 1, 2)
        given["x"] = x if last else x.contiguous()
        return given

    def _pool_arguments(self, k: int, optional: bool | None) -> dict[str, Any]:
        """Arguments of max pooling of images of k channels."""
        kernel = [1 + self.integer(3), 1 + self.integer(4)]
        padding = [self.integer(kernel[i // 2]) for i in range(4)]
        image = [kernel[i] + self.integer(7) for i in range(2)]
        given: dict[str, Any] = {
            "x": self.images(self.integer(4), max(1, k), *image),
            "kernel": kernel,
            "stride": [1 + self.integer(3), 1 + self.integer(3)],
            "padding": padding,
        }
        if bool(self.integer(2)) if optional is None else optional:
            given["flip"] = self.bits(1, max(1, k)).flatten()
        return given

    def _patch_arguments(self, k: int, optional: bool | None) -> dict[str, Any]:
        """Arguments of packing the patches of images of k channels."""
        kernel = [1 + self.integer(5), 1 + self.integer(6)]
        dilation = [1 + self.integer(2), 1 + self.integer(2)]
        image = [1 + dilation[i] * (kernel[i] - 1) + self.integer(7) for i in range(2)]
        shape = self.integer(4), max(1, k), *image
        given: dict[str, Any] = {
            "x": self.floats(*shape),
            "kernel": kernel,
            "stride": [1 + self.integer(3), 1 + self.integer(3)],
            "padding": [self.integer(4) for _ in range(4)],
            "dilation": dilation,
        }
        if bool(self.integer(2)) if optional is None else optional:
            given["threshold"] = self.floats(max(1, k))
        return given
