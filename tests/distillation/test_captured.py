"""Epochs as CUDA graphs: the same training, and only where every epoch does the same."""

import random

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from toy_problems import CLASSES, FEATURES, gcn, planted

import bitgnn
from bitgnn.distillation import captured, fitting
from bitgnn.distillation.captured import are_same, python_state
from bitgnn.nn.inputs import input_statistics

EPOCHS = 12
LABELS_ALONE = {"trained": True, "recipe": {"teacher_weight": 0.0}}
"""No answers of a teacher, whose sums on a GPU are never quite the same."""


class Touched(nn.Module):
    """A model that does something besides in every forward."""

    def __init__(self, touch):
        super().__init__()
        self.inner, self.touch = gcn(), touch
        self.calls, self.seen = 0, [0]
        self.own, self.of_numpy = random.Random(0), np.random.default_rng(0)
        self.legacy, self.of_torch = np.random.RandomState(0), torch.Generator()
        self.register_buffer("memory", torch.zeros(1))

    def forward(self, x, edge_index):
        self.touch(self, x)
        out = self.inner(x, edge_index)
        return out


CHANGES = {
    "counts": lambda model, _: setattr(model, "calls", model.calls + 1),
    "replaces a tensor": lambda model, x: setattr(
        model, "memory", model.memory * 0.9 + x.detach().mean()
    ),
    "appends": lambda model, _: model.seen.append(0),
    "draws by its own": lambda model, _: model.own.random(),
    "draws by its own of NumPy": lambda model, _: model.of_numpy.random(),
    "draws by its own legacy one": lambda model, _: model.legacy.rand(),
    "draws by its own of torch": lambda model, _: torch.rand(1, generator=model.of_torch),
    "draws by random": lambda *_: random.random(),
    "draws by NumPy": lambda *_: np.random.rand(),  # noqa: NPY002
    "draws by torch on the CPU": lambda *_: torch.rand(1),
}
WAITS = {
    "asks for a number": lambda _, x: float(x.sum()),
    "selects by a mask": lambda _, x: x[x > 0],
    "copies": lambda _, x: x.cpu(),
    "waits for the device": lambda *_: torch.cuda.synchronize(),
}


@pytest.mark.parametrize("what", [*CHANGES, "nothing"])
def test_what_python_remembers_is_seen(what):
    data, model = planted(), Touched(CHANGES.get(what, lambda *_: None)).eval()
    model(data.x, data.edge_index)
    before = list(python_state(model))
    model(data.x, data.edge_index)
    assert are_same(before, list(python_state(model))) == (what == "nothing")


@pytest.fixture
def runs(monkeypatch):
    """Whether each training ended as a graph, in their order."""
    ends = []
    fit = fitting.fit

    class Noted(captured.RepeatedEpoch):
        def __call__(self):
            found = super().__call__()
            ends[-1] = self.is_captured
            return found

    def noted(*given, **named):
        ends.append(False)
        return fit(*given, **named)

    monkeypatch.setattr(fitting, "RepeatedEpoch", Noted)
    # Epochs behind the third are graphs, of which every second one counts for the statistics.
    monkeypatch.setattr(input_statistics, "OFTEN", 2)
    monkeypatch.setattr(input_statistics, "SELDOM", 2)
    for module in ("stages", "teaching"):
        monkeypatch.setattr(f"bitgnn.distillation.{module}.fit", noted)
    return ends


def trained(model, **options):
    torch.manual_seed(0)
    data = planted().to("cuda")
    return bitgnn.distill(model.to("cuda"), data, epochs=EPOCHS, seed=1, **options)


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["bin", "full"])
def test_a_graph_trains_as_the_function_does(precision, runs, monkeypatch, tmp_path):
    model = trained(gcn()).teacher
    options = {"precision": precision, **LABELS_ALONE}
    runs.clear()
    quick = trained(model, **options, log=tmp_path)
    assert runs == [True]
    monkeypatch.setattr(captured, "WARM_UPS", EPOCHS)
    slow = trained(model, **options)
    assert runs == [True, False]
    for one, other in zip(quick.history, slow.history, strict=True):
        assert {**one, "seconds": 0} == pytest.approx({**other, "seconds": 0}, rel=1e-5, abs=1e-6)
    mine, theirs = quick.model.state_dict(), slow.model.state_dict()
    for name, tensor in mine.items():
        torch.testing.assert_close(tensor, theirs[name], msg=name)
    frozen = bitgnn.freeze(quick.model, check=False)
    data = planted().to("cuda")
    assert torch.equal(frozen(data.x, data.edge_index), quick.model(data.x, data.edge_index))


@pytest.mark.cuda
def test_teacher_and_student_are_graphs(runs):
    model = pyg.GCN(FEATURES, 16, 2, CLASSES, dropout=0.2, cached=True)
    trained(model, trained=False)
    assert runs == [True, True]


@pytest.mark.cuda
@pytest.mark.parametrize("what", [*CHANGES, *WAITS])
def test_what_python_does_in_an_epoch_goes_on(what, runs):
    result = trained(Touched((CHANGES | WAITS)[what]), trained=False)
    assert runs == [False, False]
    assert len(result.history) == EPOCHS
    if what == "counts":
        assert result.model.calls > 2 * EPOCHS
    drawn = torch.rand(4, device="cuda")  # a refused graph leaves the generator as it was
    assert drawn.unique().numel() == 4


@pytest.mark.cuda
def test_a_training_goes_on_from_its_checkpoint_as_a_graph(runs, monkeypatch, tmp_path):
    model = trained(gcn()).teacher
    whole = trained(model, **LABELS_ALONE)
    step, left = fitting.step_epoch, [EPOCHS // 2]

    def stopping(*given):
        if not left[0]:
            raise RuntimeError("stopped")
        left[0] -= 1
        step(*given)

    with monkeypatch.context() as patched:
        patched.setattr(fitting, "step_epoch", stopping)
        with pytest.raises(RuntimeError, match="stopped"):
            trained(model, **LABELS_ALONE, log=tmp_path)
    runs.clear()
    result = trained(model, **LABELS_ALONE, log=tmp_path)
    assert runs == [True]
    scores = [[row["val_score"] for row in one.history] for one in (whole, result)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)
