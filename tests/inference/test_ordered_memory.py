"""Memory of rows that kernels order by degree, predicted as it is measured."""

import pytest
import torch

from bitgnn import freeze, memory_report, models

NODES, FEATURES, EDGES = 20_000, 64, 9_000_000
SMALL = 20_000
"""Bytes that the allocator rounds up to, and that small results take beside the large ones."""


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_order_of_many_edges_is_counted():
    torch.manual_seed(0)
    edge_index = torch.randint(NODES, (2, EDGES), device="cuda")
    x = torch.randn(NODES, FEATURES, device="cuda")
    model = models.GCN(FEATURES, 40, 7, precision="full").cuda().eval()
    report = memory_report(freeze(model), (x, edge_index))
    forward = report.predicted.activations + report.predicted.workspace
    assert forward == pytest.approx(report.measured.forward, rel=0.03, abs=SMALL)
