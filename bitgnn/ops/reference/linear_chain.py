"""Reference of chains of fully connected layers on bits."""

from collections.abc import Sequence

import torch
from torch import Tensor

from bitgnn.bits.tensor import words_for
from bitgnn.ops.reference.pack import from_words, to_words
from bitgnn.ops.reference.table import operator

LAYER_NUMBERS = 4
"""Numbers that describe a layer: size, outputs, and where weights and table begin in the image."""
HIDDEN_TABLE = 2
"""Words of table an output of a hidden layer: least count, turned."""
LAST_TABLE = 4
"""Words of table an output of the last layer: bare dot product, scale, bias, one left over."""
STEP_WORDS = 8
"""Rows of weights are padded to a multiple of these."""


def chain_words(size: int) -> int:
    """Words of a row of weights in an image."""
    return -(-words_for(size) // STEP_WORDS) * STEP_WORDS


def _last_values(x: Tensor, layers: Sequence[int]) -> Tensor:
    if not layers or len(layers) % LAYER_NUMBERS:
        raise RuntimeError(
            f"linear_chain: layers must hold {LAYER_NUMBERS} numbers for each layer, "
            f"got {len(layers)} numbers"
        )
    return x.new_empty((x.size(0), layers[-LAYER_NUMBERS + 1]), dtype=torch.float32)


@operator("x:_,_ image:_", _last_values)
def linear_chain(x: Tensor, image: Tensor, layers: Sequence[int]) -> Tensor:
    """Float32 ``[N, M]`` of the last layer, of bits ``[N, ceil(K / 32)]`` through all layers.

    With p the set bits that row and weights share and |x| those of the row, a hidden bit is
    ``(2 p - |x| >= least) ^ turned`` and the result ``scale * (bare + 2 (2 p - |x|)) + bias``,
    every step rounded to float32.
    """
    count = len(layers) // LAYER_NUMBERS
    value = x.new_empty(0)
    for number in range(count):
        size, outputs, weights, table = layers[number * LAYER_NUMBERS :][:LAYER_NUMBERS]
        last = number + 1 == count
        words = image[weights : weights + outputs * chain_words(size)].view(outputs, -1)
        width = LAST_TABLE if last else HIDDEN_TABLE
        entries = image[table : table + outputs * width].view(outputs, width)
        bits = from_words(x, size).double()
        shared = bits @ from_words(words, size).double().t()
        counts = (2 * shared - bits.sum(1, keepdim=True)).to(torch.int32)
        if last:
            scale, bias = entries[:, 1:3].contiguous().view(torch.float32).unbind(1)
            value = scale * (entries[:, 0] + 2 * counts).to(torch.float32) + bias
        else:
            x = to_words((counts >= entries[:, 0]) ^ entries[:, 1].bool())
    return value
