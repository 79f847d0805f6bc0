"""freeze() for convolutional and fully connected networks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bitgnn.convert.network.fold_linear import become, readers_of
from bitgnn.convert.network.lower import lower_images
from bitgnn.convert.network.output import Output, set_output
from bitgnn.convert.network.values import ROWS, Network, Value, ordered
from bitgnn.convert.selection.select import select_steps
from bitgnn.convert.tracing.trace import trace_model
from bitgnn.inference.frozen_model import FrozenModel

__all__ = ["freeze_images"]

_ENDS = ("softmax", "log_softmax")
_OF_OTHER_INPUTS = (nn.Conv1d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose3d)


def freeze_images(model: nn.Module, output: Output | None, fold: bool) -> FrozenModel:
    """The frozen form of a network of images; see :func:`bitgnn.freeze`.

    Args:
        model: its forward takes images or rows alone.
        output: what the frozen model hands out.
        fold: take a batch norm behind the last layer into its scale and bias.

    Raises:
        ValueError: the model cannot be traced, has no binary layer or takes another input, or
            shapes do not fit.
    """
    network = lower_images(trace_model(model))
    if not network.letters:
        raise ValueError(
            f"freeze: {type(model).__name__} has no binary layer; binarize() it and train it first"
        )
    _check_input(network)
    set_output(network, output)
    if fold:
        _fold_last_norm(network)
    return select_steps(network)


def _check_input(network: Network) -> None:
    """Refuse networks of other inputs than images and rows.

    Raises:
        ValueError: a convolution of signals or volumes reads the input.
    """
    assert network.scores is not None
    for value in ordered(network.scores):
        layer = None if value.call is None else value.call.function
        if not isinstance(layer, _OF_OTHER_INPUTS):
            continue
        sources = list(value.inputs)
        while sources and sources[0].kind == "function":
            sources = list(sources[0].inputs)
        if network.features in sources:
            raise ValueError(
                f"freeze: layer {value.layer!r} ({type(layer).__name__}) reads the input, and a "
                "frozen network takes images [N, C, H, W] or rows [N, K]"
            )


def _fold_last_norm(network: Network) -> None:
    """A batch norm between the last linear map and the scores becomes its scale and bias.

    In front of signs this would not do: rounding could turn one round.
    """
    scores = network.scores
    assert scores is not None
    end = scores
    while end.kind == "classes" or (end.kind == "function" and end.name in _ENDS):
        (end,) = end.inputs
    if end.name != "batch_norm" or end.rank != ROWS:
        return
    (product,) = end.inputs
    if product.kind != "product" or product.rank != ROWS or readers_of(scores)[product] > 1:
        return
    gain, shift = _affine(end)
    scale, bias = product.tensors.get("scale"), product.tensors.get("bias")
    tensors = {
        "weight": product.tensors["weight"],
        "scale": gain if scale is None else scale * gain,
        "bias": shift if bias is None else bias * gain + shift,
    }
    network.folded[product.layer] = f"takes the batch norm {end.layer} into its scale and bias"
    become(
        end,
        Value(
            "product", product.layer, product.inputs, product.size, "", product.attributes,
            tensors, rank=ROWS,
        ),
    )  # fmt: skip
    end.layer = product.layer
    assert end in ordered(scores)


def _affine(norm: Value) -> tuple[Tensor, Tensor]:
    """Gain and shift of a batch norm in float32, as PyTorch's CPU code makes them."""
    tensors = norm.tensors
    gain = 1 / torch.sqrt(tensors["var"] + norm.attributes["eps"])
    if "weight" in tensors:
        gain = gain * tensors["weight"]
    shift = -tensors["mean"] * gain
    return gain, shift + tensors["bias"] if "bias" in tensors else shift
