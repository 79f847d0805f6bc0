"""Inputs of the tests of looked-up bits, and the values that their bits stand for."""

import torch

from bitgnn.nn import InputBits

N, K = 400, 12
STEP = 2.0**-16


def words_of(share, size=K):
    """0 and 1, with shares of 1 around the given one: features are not all as frequent."""
    return (torch.rand(N, size) < torch.linspace(0.4, 1.6, size) * share).float()


def looked(x, owner="Layer"):
    """Input bits that have looked at ``x``."""
    bits = InputBits(owner)
    bits.look_up(x)
    return bits


def values_of(found):
    """The doubles that an answer's bits stand for, behind gain and offset."""
    values = torch.ops.bitgnn.unpack(found.words, found.size).double()
    values = (values + 1) / 2 if found.zero_one else values
    values = values if found.gain is None else values * found.gain.double()
    return values if found.offset is None else values + found.offset.double()
