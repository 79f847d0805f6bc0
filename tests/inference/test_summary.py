"""The summary: numbers worked out by hand, times where there are inputs, tables that print."""

import json

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import bitgnn
from bitgnn.inference.costs import call_cost
from bitgnn.models import GCN
from bitgnn.nn import GCNConv

N = 50
EDGES = torch.randint(N, (2, 200), generator=torch.Generator().manual_seed(0))
X = torch.randn(N, 70, generator=torch.Generator().manual_seed(1))


def by_name(found):
    return {layer.name: layer for layer in found.layers}


def test_numbers_of_a_binary_model():
    model = GCN(70, 40, 5, precision="bin").eval()
    found = bitgnn.summary(model)
    first, second = (by_name(found)[name] for name in ("convs.0", "convs.1"))
    assert first.letters == "FBB+BBB"
    bits = (first.activation_bits, first.weight_bits, first.aggregation_bits, first.output_bits)
    assert bits == (1, 1, 1, 1)
    bits = (second.activation_bits, second.weight_bits, second.aggregation_bits, second.output_bits)
    assert bits == (1, 1, 32, 32)
    assert first.float_bytes == 4 * 70 * 40
    assert first.packed_bytes == 4 * 3 * 40  # biases of 0 need no threshold
    assert second.float_bytes == 4 * (40 * 5 + 5)
    assert second.packed_bytes == 4 * (2 * 5 + 5 + 5)
    assert found.one_bit_share == 1.0
    assert first.measured_seconds is None
    assert "measured" not in str(found)
    assert "give data" in str(found)


def test_steps_cost_what_their_rows_and_edges_do():
    # Float edge weights need a product for each sum, patterns do not.
    for letters, operations in (("FBF+FBF", 5), ("FBF+FFF", 10)):
        frozen = bitgnn.freeze(GCNConv(70, 5, precision=letters).eval())
        graph = frozen.prepare_graph(EDGES, N)
        step = next(step for step in frozen.program.calls if step.kind.startswith("bspmm_"))
        assert call_cost(frozen, step, N, [graph]).wide == operations * graph.nnz


def test_share_counts_aggregations_where_there_is_a_graph():
    model = GCN(70, 40, 5, precision="bin", input_norm=False).eval()
    found = bitgnn.summary(model, (X, EDGES), repeats=2)
    edges = model.convs[0]._bit_adjacency(N, EDGES, None).nnz
    bits = 2 * N * 70 * 40 + 40 * edges + 2 * N * 40 * 5
    floats = 5 * edges + N * 70  # the last aggregation, packing
    assert found.one_bit_share == pytest.approx(bits / (bits + floats))


@pytest.mark.parametrize("form", ["tuple", "data", "prepared"])
def test_times(form):
    model = GCN(70, 40, 5, precision="full").eval()
    frozen = bitgnn.freeze(model)
    given = {
        "tuple": (X, EDGES),
        "data": Data(X, EDGES),
        "prepared": (frozen.pack_features(X), frozen.prepare_graph(EDGES, N)),
    }[form]
    for which in (frozen,) if form == "prepared" else (model, frozen):
        found = bitgnn.summary(which, given, repeats=3)
        for name in ("convs.0", "convs.1"):
            layer = by_name(found)[name]
            assert layer.measured_seconds > 0
        assert "measured µs" in str(found)
        text = json.dumps(found.to_dict())
        assert json.loads(text)["layers"][-1]["name"] == "convs.1"
    assert not any(module._forward_hooks for module in model.modules())


def test_model_without_graph_and_bad_arguments():
    model = nn.Sequential(bitgnn.nn.Linear(70, 64, precision="FBF"), nn.Linear(64, 3))
    found = bitgnn.summary(model, X, repeats=2)
    assert [layer.name for layer in found.layers] == ["input", "0", "1"]

    class Branch(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    for error, message, *arguments in (
        (TypeError, r"must be a torch\.nn\.Module, got str", "model"),
        (ValueError, "data must be a Data object", model, {"x": X}),
        (ValueError, "summary: the forward of Branch cannot be traced", Branch()),
    ):
        with pytest.raises(error, match=message):
            bitgnn.summary(*arguments)
    with pytest.raises(ValueError, match="repeats must be at least 1, got 0"):
        bitgnn.summary(model, repeats=0)
