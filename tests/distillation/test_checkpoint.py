"""Checkpoints: whole or absent, named mismatches, logs, random states, and the best epoch."""

import json
import math
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn
from torch_geometric.nn import GCN

import bitgnn
from bitgnn.data import load_digits_graph
from bitgnn.distillation import session as sessions
from bitgnn.distillation.checkpoint import (
    CheckpointError,
    RunLog,
    random_state,
    read_checkpoint,
    set_random_state,
    write_checkpoint,
)
from bitgnn.distillation.objectives import roc_auc
from bitgnn.distillation.recipe import DistillRecipe
from bitgnn.distillation.session import BestState, Fit, Keeper

ONES = {"model": {"a": torch.ones(3)}}
RECIPE = DistillRecipe(epochs=4, learning_rate=0.01)


def session_of(layers, recipe=RECIPE):
    session = Fit(GCN(6, 8, layers, 3), recipe, {"part": "teacher"})
    session.history.append(torch.zeros(len(Fit.columns), dtype=torch.float64))
    return session


def test_checkpoint_of_another_model_or_recipe_is_refused(tmp_path):
    session_of(2).save(tmp_path / "a")
    faster = session_of(2, RECIPE.model_copy(update={"learning_rate": 0.5}))
    with pytest.raises(CheckpointError, match=r"learning_rate 0\.01 there, 0\.5 here"):
        faster.resume(tmp_path / "a")
    other = session_of(3)
    before = {name: tensor.clone() for name, tensor in other.model.state_dict().items()}
    with pytest.raises(CheckpointError, match=r"convs\.2\.lin\.weight is missing") as caught:
        other.resume(tmp_path / "a")
    assert "convs.1.lin.weight is [3, 8], must be [8, 8]" in str(caught.value)
    for name, tensor in other.model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_damaged_checkpoint_is_named_and_kept(tmp_path):
    file = tmp_path / "damaged"
    write_checkpoint(file, ONES, {"epoch": 1})
    whole = file.read_bytes()
    for content in (whole[:-2], b"", b"no checkpoint at all"):
        file.write_bytes(content)
        with pytest.raises(CheckpointError, match="damaged: no readable checkpoint"):
            read_checkpoint(file)
        assert file.read_bytes() == content
    write_checkpoint(file, ONES, {"format": 7})
    with pytest.raises(CheckpointError, match="format must be 2, got 7"):
        read_checkpoint(file)
    assert read_checkpoint(tmp_path / "absent") is None


def test_interrupted_write_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    file = tmp_path / "run"
    write_checkpoint(file, ONES, {"epoch": 1})

    def fails(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fails)
    with pytest.raises(OSError, match="disk full"):
        write_checkpoint(file, ONES, {"epoch": 2})
    assert read_checkpoint(file)[1]["epoch"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_checkpoints_take_a_small_share_of_the_time(tmp_path, monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(sessions.time, "perf_counter", lambda: float(next(clock)))
    session = session_of(2)
    keeper, saved = Keeper(session, tmp_path / "run"), []
    monkeypatch.setattr(session, "save", lambda path: saved.append(session.epoch))
    for _ in range(60):
        session.history.append(session.history[0])
        keeper.epoch_done()
    # Writing takes a second or two by this clock, an epoch one: others follow 20 times as late.
    assert saved[0] == 2
    assert 2 <= len(saved) <= 4
    keeper.keep()
    assert len((tmp_path / "run.jsonl").read_text().splitlines()) == session.epoch


KILLED = """
import sys
import torch
from torch_geometric.nn import GCN
import bitgnn
from bitgnn.data import load_digits_graph
torch.set_num_threads(1)
torch.manual_seed(0)
data = load_digits_graph()
model = GCN(data.x.size(1), 8, 2, 10, dropout=0.3)
bitgnn.distill(model, data, epochs=100, log=sys.argv[1], trained=False)
"""


@pytest.mark.slow
def test_kill_9_loses_at_most_the_epoch_in_flight(tmp_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    checkpoint = tmp_path / "parts" / "student.checkpoint"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "parts")])
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline and not checkpoint.exists():
        time.sleep(0.001)
    seen = read_checkpoint(checkpoint)[1]["epoch"]
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    # Nothing that was written before the kill is lost, and what is there is whole.
    assert seen <= read_checkpoint(checkpoint)[1]["epoch"] < 100
    data = load_digits_graph()
    states = []
    for name in ("parts", "whole"):
        torch.manual_seed(0)
        model = GCN(data.x.size(1), 8, 2, 10, dropout=0.3)
        found = bitgnn.distill(model, data, epochs=100, log=tmp_path / name, trained=False)
        states.append(found.model.state_dict())
    torch.set_num_threads(threads)
    for name, tensor in states[0].items():
        assert torch.equal(tensor, states[1][name]), name


def test_logs_hold_nan_as_null(tmp_path):
    log = RunLog(tmp_path / "run")
    log.restart([])
    log.append([{"epoch": 0, "val_loss": math.nan}])
    log.append([{"epoch": 1, "val_loss": 0.5}])
    rows = [json.loads(line) for line in log.jsonl.read_text().splitlines()]
    assert rows == [{"epoch": 0, "val_loss": None}, {"epoch": 1, "val_loss": 0.5}]
    assert log.csv.read_text() == "epoch,val_loss\n0,nan\n1,0.5\n"
    log.restart(rows[1:])
    assert log.csv.read_text() == "epoch,val_loss\n1,0.5\n"


def test_random_states_come_back():
    device = torch.device("cpu")
    random.gauss(0, 1)  # leaves a second value behind, which is part of the state
    np.random.standard_normal()  # noqa: NPY002
    tensors, values = random_state(device)
    values = json.loads(json.dumps(values))

    def draw():
        legacy = np.random
        return (
            torch.rand(3).tolist(), random.random(), random.gauss(0, 1),
            legacy.standard_normal(3).tolist(), legacy.randint(1000),
        )  # fmt: skip

    first = draw()
    assert draw() != first
    set_random_state(tensors, values, device)
    assert draw() == first


def offered(values, patience, device="cpu"):
    model = nn.Linear(1, 1, bias=False).to(device)
    best = BestState(model, patience)
    for epoch, value in enumerate(values):
        with torch.no_grad():
            model.weight.fill_(epoch)
        number = torch.tensor(epoch, device=device)
        best.offer(number, torch.tensor(value, dtype=torch.float64, device=device))
    return best


@pytest.mark.parametrize(
    ("values", "patience", "epoch"),
    [
        ([3.0, 1.0, 1.0, 2.0], None, 1),
        ([math.nan, 2.0, math.nan, 1.0], None, 3),
        ([3.0, 4.0, 5.0, 1.0], 2, 0),  # a training stopped after epoch 2 never saw the last
        ([3.0, 4.0, 2.0, 5.0, 1.0], 2, 4),
        ([math.nan, math.nan, math.nan, 1.0], 1, 3),
        ([math.nan, math.inf], None, -1),
    ],
)
def test_the_first_best_epoch_within_patience_is_kept(values, patience, epoch):
    best = offered(values, patience)
    assert int(best.epoch) == epoch
    if epoch >= 0:
        assert float(best.state["weight"]) == epoch
        assert best.stop_after() == (None if patience is None else epoch + patience)


@pytest.mark.cuda
def test_choice_on_the_device_is_that_on_the_cpu():
    values = [3.0, math.nan, 2.0, 4.0, 5.0, 1.0]
    there, here = offered(values, 2, "cuda"), offered(values, 2)
    assert int(there.epoch) == int(here.epoch)
    assert float(there.state["weight"]) == int(here.epoch)


@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_roc_auc_is_that_of_scikit_learn(levels):
    generator = torch.Generator().manual_seed(levels)
    scores = torch.randint(levels, (200,), generator=generator).float()
    y = torch.rand(200, generator=generator) < 0.3
    expected = roc_auc_score(y.numpy(), scores.numpy())
    assert float(roc_auc(scores[y], scores[~y])) == pytest.approx(expected, abs=1e-12)
