"""Memory of a GPU's forward without a GPU: each call takes what dry runs of its operators say.

Where torch has no CUDA, BITGNN_CUDA_LIBRARY names the folder of a library from build_cuda.sh.
"""

import pytest
import torch
from operator_calls import OperatorCalls

from bitgnn import models
from bitgnn._library import load_for_dry_runs
from bitgnn.convert import freeze
from bitgnn.inference import frozen_memory, memory
from bitgnn.inference.rehearsal import rehearse
from bitgnn.ops.route import DEVICES, DeviceDescription, route

PROBLEM = load_for_dry_runs()
needs_library = pytest.mark.skipif(bool(PROBLEM), reason=f"no dry runs: {PROBLEM}")
N, FEATURES, CLASSES = 6000, 300, 7


@pytest.fixture(scope="module")
def edges():
    return torch.randint(N, (2, 100_000), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def x():
    return torch.randn(N, FEATURES, generator=torch.Generator().manual_seed(1))


def frozen_model(kind, precision, x, edges, hidden=160, classes=CLASSES, **options):
    torch.manual_seed(0)
    model = getattr(models, kind)(FEATURES, hidden, classes, precision=precision)
    with torch.no_grad():
        model(x, edges)  # starts the scales of ternary values
    return freeze(model.eval(), **options)


# Pairs, products, wide and dense sums, sums joined with products, ternary planes.
MODELS = [
    ("GCN", "bin", 160, CLASSES),
    ("GCN", "bin", 1100, 200),
    ("GCN", "full", 160, CLASSES),
    ("GCN", "full", 256, CLASSES),
    ("GraphSAGE", "bin", 128, CLASSES),
    ("GraphSAINT", "full", 96, CLASSES),
    ("GCN", "TBF+TBB, BBF+TBF", 96, CLASSES),
]


@needs_library
@pytest.mark.parametrize("device", ["H200", "A100", "RTX 5090"])
@pytest.mark.parametrize("layout", ["csr", "sliced"])
@pytest.mark.parametrize(("kind", "precision", "hidden", "classes"), MODELS)
def test_calls_take_what_dry_runs_of_their_operators_say(
    kind, precision, hidden, classes, layout, device, x, edges
):
    frozen = frozen_model(kind, precision, x, edges, hidden, classes)
    graph = frozen.prepare_graph(edges, N, layout=layout)
    rehearsed = rehearse(frozen, x, graph, device)
    without_kernels = rehearse(frozen, x, graph, None)
    repeatable = frozen.repeatable_calls(x, graph)
    assert len(rehearsed) == len(repeatable) == len(frozen.groups(x))
    scratch = 0
    for found, plain, (_, call) in zip(rehearsed, without_kernels, repeatable, strict=True):
        with torch.no_grad(), OperatorCalls() as operators:
            call()
        calls = operators.calls
        taken = [route(n, *args, device=device, **named).scratch_bytes for n, args, named in calls]
        most = max(taken, default=0)
        scratch = max(scratch, most)
        assert found.activations == plain.activations
        assert most <= found.workspace <= plain.workspace + most
        if len(calls) == 1 and plain.workspace == 0:  # nothing beside one operator
            assert found.workspace == most
    assert scratch > 0
    use = frozen_memory(frozen, x, graph, device)
    assert use.activations + use.workspace == max(call.total for call in rehearsed)


@needs_library
def test_any_device_can_be_described(x, edges):
    frozen = frozen_model("GCN", "bin", x, edges)
    graph = frozen.prepare_graph(edges, N)
    described = DeviceDescription(80, 108, 166_912, 40 << 20)
    assert described == DEVICES["A100"]
    use = frozen_memory(frozen, x, graph, described)
    assert use == frozen_memory(frozen, x, graph, "A100")
    with pytest.raises(ValueError, match="device must be one of A100, H100"):
        frozen_memory(frozen, x, graph, "abacus")


def test_nothing_runs(x, edges):
    frozen = frozen_model("GCN", "bin", x, edges)
    graph = frozen.prepare_graph(edges, N)
    calls = rehearse(frozen, x, graph, None)
    # Hidden words, then those and the scores.
    assert [call.activations for call in calls] == [4 * N * 5, 4 * N * (5 + CLASSES)]
    assert [call.workspace for call in calls] == [0, 0]
    # A row of features for each node takes no memory itself.
    one = x[:1].expand(N, FEATURES)
    assert rehearse(frozen, one, graph, None) == calls


def test_without_a_library_there_is_one_clear_error(x, edges, monkeypatch):
    frozen = frozen_model("GCN", "bin", x, edges)
    graph = frozen.prepare_graph(edges, N)
    monkeypatch.setattr(memory, "load_for_dry_runs", lambda: "no compiled library _C_cuda*")
    with pytest.raises(RuntimeError, match=r"memory of a GPU cannot be counted: no compiled libr"):
        frozen_memory(frozen, x, graph, "H200")
    assert frozen_memory(frozen, x, graph).workspace > 0  # where the model lies needs none
