"""Inputs of the tests of input bits, and the values that their bits stand for."""

import torch

from bitgnn.nn import InputBits

N, K = 400, 12
STEP = 2.0**-16


def words_of(share, size=K):
    """0 and 1, with shares of 1 around the given one: features are not all as frequent."""
    return (torch.rand(N, size) < torch.linspace(0.4, 1.6, size) * share).float()


def looked(x, reads=False, owner="Layer"):
    """Input bits in evaluation behind one batch in training."""
    bits = InputBits(owner, x.size(-1))
    bits.set_reads(reads)
    bits.choose(x)
    bits(x)
    return bits.eval()


def values_of(found):
    """The doubles that an answer's bits stand for, behind gain and offset."""
    values = (torch.ops.bitgnn.unpack(found.words, found.size).double() + 1) / 2
    values = values if found.gain is None else values * found.gain
    return values + found.offset.double()
