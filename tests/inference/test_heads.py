"""Models that end in softmax, its logarithm or classes, by their own forward or by request."""

import pytest
import torch
from chains import CLASSES, Chain, N, shake
from torch import nn
from torch.nn import functional

from bitgnn.convert import freeze
from bitgnn.inference import FreezeReport, FrozenModel, call_by_call, load, save
from bitgnn.inference.program import Program
from bitgnn.models import GCN

BIN = ["FBB+BBB", "BBB+BBB", "BBF+FBF"]
KINDS = {"classes": "argmax"}
OUTPUTS = {
    "log_softmax": lambda scores: scores.log_softmax(-1),
    "softmax": lambda scores: scores.softmax(-1),
    "classes": lambda scores: scores.argmax(-1),
}


class Ending(nn.Module):
    """A chain with a function of the user's at its end."""

    def __init__(self, last):
        super().__init__()
        self.chain = Chain("gcn", BIN)
        self.last = last

    def forward(self, x, edge_index):
        return self.last(self.chain(x, edge_index))


def _kinds(frozen):
    return [step.kind for step in frozen.program.calls]


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("precision", [BIN, ["full", "full"]])
def test_requested_outputs(output, precision, x, edges, tmp_path):
    model = shake(Chain("gcn", precision), x, edges)
    scores = freeze(model, check=False)(x, edges)
    frozen = freeze(model, output=output, check=False)
    found = frozen(x, edges)
    assert torch.equal(found, OUTPUTS[output](scores))
    assert frozen.out_channels == CLASSES
    assert _kinds(frozen)[-1] == KINDS.get(output, output)
    assert torch.equal(load(save(frozen, tmp_path / "model"))(x, edges), found)
    if output == "classes":
        assert found.dtype == torch.int64
        assert found.shape == (N,)


@pytest.mark.parametrize(
    ("last", "kind"),
    [
        (lambda v: functional.log_softmax(v, dim=-1), "log_softmax"),
        (lambda v: torch.log_softmax(v, 1), "log_softmax"),
        (lambda v: v.log_softmax(dim=1), "log_softmax"),
        (nn.LogSoftmax(dim=1), "log_softmax"),
        (lambda v: functional.softmax(v, dim=-1), "softmax"),
        (lambda v: v.softmax(-1), "softmax"),
        (nn.Softmax(dim=-1), "softmax"),
        (lambda v: v.argmax(dim=-1), "classes"),
        (lambda v: torch.argmax(v, 1), "classes"),
        (lambda v: v.max(1)[1], "classes"),
        (lambda v: v.max(dim=-1).indices, "classes"),
        (lambda v: torch.max(v, dim=-1)[1], "classes"),
        (lambda v: (0.5 * v).log_softmax(dim=-1).argmax(dim=-1), "classes"),
    ],
)
def test_own_ends_are_steps(last, kind, x, edges, tmp_path):
    model = shake(Ending(last), x, edges)
    frozen = freeze(model)
    scores = freeze(model.chain)(x, edges)
    assert torch.equal(frozen(x, edges), OUTPUTS[kind](scores))
    *kinds, last_kind = _kinds(frozen)
    assert last_kind == KINDS.get(kind, kind)
    assert not {"call", last_kind} & set(kinds)
    load(save(frozen, tmp_path / "model"))


def test_refusals(x, edges):
    model, ending = shake(Chain("gcn", BIN), x, edges), shake(Ending(OUTPUTS["classes"]), x, edges)
    for frozen, output, message in (
        (model, "probabilities", r"output must be None or one of .*, got 'probabilities'"),
        (ending, "softmax", "got 'softmax': the forward returns classes"),
    ):
        with pytest.raises(ValueError, match=message):
            freeze(frozen, output=output)


@pytest.mark.parametrize(
    "last",
    [
        lambda v: functional.one_hot(v.argmax(dim=-1), CLASSES).float(),
        lambda v: v.max(dim=-1).values,
        lambda v: v.argmax(dim=0),
        lambda v: v.argmax(dim=-1, keepdim=True),
        lambda v: v.argmax(dim=-1).float().relu(),
    ],
)
def test_other_uses_run_as_their_own_code(last, x, edges):
    model = shake(Ending(last), x, edges)
    frozen = freeze(model)
    assert any("it runs as its own code" in why for why in frozen.report.floats.values())
    assert torch.equal(frozen(x, edges), last(freeze(model.chain)(x, edges)))


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("wide", [False, True])
def test_the_last_aggregation_hands_out_the_head(wide, output, x, edges, device):
    torch.manual_seed(0)
    model = GCN(x.size(1), 40, 70 if wide else CLASSES, precision="bin").eval()
    frozen = freeze(model, output=output).to(device)
    scores = freeze(model).to(device)
    x, edges = x.to(device), edges.to(device)
    graph = frozen.prepare_graph(edges, N)
    for given in (x, frozen.pack_features(x, layout="dense")):
        kinds = [[step.kind for step in group] for group in call_by_call.groups(frozen, given)]
        assert kinds[-1][-3:] == ["bmm_bbf", "bspmm_fbf", KINDS.get(output, output)]
        found, expected = frozen(given, graph), scores(given, graph)
        if output == "classes":
            assert torch.equal(found, expected.argmax(-1))
        else:
            torch.testing.assert_close(found, OUTPUTS[output](expected), rtol=1e-5, atol=1e-5)
        # Alone, the steps hand their scores to torch.
        *_, (_, _, last) = call_by_call.steps(frozen, given, graph)
        torch.testing.assert_close(found, last, rtol=1e-5, atol=1e-5)


def test_ties_and_nan_as_argmax():
    nan, inf = float("nan"), float("inf")
    scores = torch.tensor([[1.0, 3, 3], [0, -0.0, 0], [1, nan, nan], [-inf, -inf, inf]])
    lines = ["%0: floats[3]", "%1: classes[3] = aten::argmax(%0, -1)  # output", "return %1"]
    program = Program.read("\n".join(lines))
    head = FrozenModel(program, {}, [], FreezeReport())
    assert head(scores).tolist() == [1, 0, 1, 2]
    assert head(scores[:0]).tolist() == []
