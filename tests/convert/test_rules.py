"""What layers and functions become: own code without a form, thermometers of sixteen bits."""

import pytest
import torch
from chains import FEATURES, HIDDEN, N
from torch import nn
from torch_geometric.nn import GCN, GraphSAGE

import bitgnn
from bitgnn.convert import freeze
from bitgnn.convert.network.functions import FUNCTIONS
from bitgnn.convert.network.layers import MOST_WASTE
from bitgnn.nn import GCNConv

NODES = 120


class Own(nn.Module):
    def __init__(self, rest):
        super().__init__()
        self.conv, self.rest = GCNConv(FEATURES, HIDDEN, precision="FBB+BBF"), [rest]

    def forward(self, x, edge_index):
        return self.rest[0](self.conv(x, edge_index))


def _without_a_form(x):
    x = torch.cat(x.split(20, dim=1)[:2], dim=1)
    return torch.cat(x.chunk(2)) + torch.add(x, other=x, alpha=2)


def test_arguments_without_a_form_run_as_their_own_code():
    model, graph = Own(_without_a_form).eval(), torch.randint(0, N, (2, 100))
    x = torch.randn(N, FEATURES)
    frozen = freeze(model)
    for name in ("cat", "cat_1", "add"):
        assert "it runs as its own code" in frozen.report.floats[name]
    torch.testing.assert_close(frozen(x, graph), model(x, graph).detach(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("error", [AttributeError, TypeError])
def test_faults_of_rules_are_not_hidden(error, monkeypatch):
    def broken(name, x):
        raise error("a fault")

    monkeypatch.setitem(FUNCTIONS, "relu", broken)
    with pytest.raises(error, match="a fault"):
        freeze(Own(lambda x: x.relu()).eval())


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
