"""The conversion benchmark: its stages are the whole; graphs it cannot use are refused."""

import pytest
import torch

from bench_conversion import STAGES, ConversionCase, distinct_edges
from bitgnn.measure.timing import Clock


def test_stages_are_the_whole():
    result = ConversionCase("GCN", 200, distinct_edges(200, 900)).run(Clock("cpu"), 7)
    assert list(result["stages"]) == list(STAGES)
    parts = [sum(part) for part in zip(*result["stages"].values(), strict=True)]
    assert len(parts) == 7
    assert result["seconds"] == pytest.approx(parts)


def test_duplicate_edges_are_refused():
    edge_index = torch.tensor([[0, 0, 1], [1, 1, 2]])
    with pytest.raises(ValueError, match="must be free of duplicates"):
        ConversionCase("GCN", 3, edge_index).run(Clock("cpu"), 7)
