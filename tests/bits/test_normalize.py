"""Factors of normalised patterns, rounded the same on every device."""

import math

import torch

from bitgnn.bits.factors import symmetric_factor


def test_roots_are_rounded_correctly():
    degree = torch.arange(1, 5001)
    # torch's own float32 root is an ulp off for many of these on a CPU.
    root = torch.tensor([math.sqrt(d) for d in degree.tolist()], dtype=torch.float64).float()
    expected = (1 / root.double()).float()
    assert torch.equal(symmetric_factor(degree), expected)


def test_nodes_without_edges():
    assert torch.equal(symmetric_factor(torch.tensor([0, 4])), torch.tensor([0.0, 0.5]))
