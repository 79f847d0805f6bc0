"""Thermometers freeze with sixteen adjacent bits a feature where that wastes little."""

import pytest
import torch
from torch_geometric.nn import GCN, GraphSAGE

import bitgnn
from bitgnn.convert.network.layers import MOST_WASTE

NODES = 120


def frozen(kind, form, x, edges):
    torch.manual_seed(0)
    model = bitgnn.binarize(kind(x.size(1), 33, 2, 5), form)
    model(x, edges).square().sum().backward()
    model.eval()
    with torch.no_grad():
        scores = model(x, edges)
    result = bitgnn.freeze(model, check=False)
    assert torch.equal(result(x, edges), scores)
    return model, result.program.steps


@pytest.mark.parametrize("form", ["bin", "full"])
@pytest.mark.parametrize("kind", [GCN, GraphSAGE])
def test_frozen_scores_are_the_trained_ones(kind, form):
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(NODES - 5, (2, 700), generator=generator)
    kinds = set()
    for features in (1, 2, 37, 100, 131):
        x = torch.randn(NODES, features, generator=generator)
        # Few values: fewer bits, an odd number of them in some of the cases.
        x[:, ::3] = x[:, ::3].mul(2).round().div(2)
        model, (step, *_) = frozen(kind, form, x, edges)
        bits = model.convs[0].input_bits
        assert step.kind == "pack_levels"
        kinds.add("columns" if "columns" in step.tensors else "slots")
        size, own = step.attributes["size"], bits.columns.numel()
        if "columns" in step.tensors:
            assert size == own
        else:
            assert (size - own) % 2 == 0
            assert size <= MOST_WASTE * own
    assert "slots" in kinds


def test_features_of_few_values_keep_their_columns():
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-1, 3, (NODES, 40), generator=generator).float()
    _, (step, *_) = frozen(GCN, "bin", x, torch.randint(NODES, (2, 700), generator=generator))
    assert set(step.tensors) == {"columns", "thresholds"}
