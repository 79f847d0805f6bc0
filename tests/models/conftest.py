"""One small graph with every odd case, and a builder of each model."""

import pytest
import torch
from graphs import odd_graph

from bitgnn.models import GCN, GraphSAGE, GraphSAINT

NODES, FEATURES, CLASSES = 33, 31, 3

BUILDERS = {
    "GCN": GCN,
    "inductive GCN": lambda *sizes, **options: GCN(*sizes, inductive=True, **options),
    "GraphSAGE": GraphSAGE,
    "GraphSAINT": GraphSAINT,
}


@pytest.fixture
def edges():
    return odd_graph(NODES, 90, seed=1)


@pytest.fixture
def x():
    return torch.randn(NODES, FEATURES, generator=torch.Generator().manual_seed(2))


@pytest.fixture(params=list(BUILDERS))
def build(request):
    def make(precision="fp32", **options):
        torch.manual_seed(0)
        return BUILDERS[request.param](FEATURES, 32, CLASSES, precision=precision, **options)

    make.name = request.param
    return make
