"""Checkpoints: whole or absent, named mismatches, and a resumed run equal bit for bit."""

import dataclasses
import io
import json
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from rich.console import Console

from bitgnn.data import load_digits_graph
from bitgnn.train import CheckpointError, RunOptions, RunStore, load_config, train_all
from bitgnn.train.build import build_model, make_task
from bitgnn.train.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from bitgnn.train.keeping import Keeping, RunLog
from bitgnn.train.loop import train_model
from bitgnn.train.randomness import random_state, set_random_state
from bitgnn.train.session import NodeSession

QUIET = Console(file=io.StringIO())
EVERY_EPOCH = RunOptions(checkpoint_seconds=0)


class Killed(Exception):
    """Stands for anything that ends a training between two epochs."""


def train(config, data, folder, recipe, stop_after=None, seconds=0.0):
    """Train 'bin'; optionally end it after some epochs."""
    torch.manual_seed(3)
    model = build_model(config, "bin", data)
    seen = []

    def on_epochs(count):
        seen.append(count)
        if stop_after is not None and sum(seen) >= stop_after:
            raise Killed

    keeping = Keeping(folder / "run.checkpoint", RunLog(folder / "run"), seconds)
    return train_model(
        model, make_task(config, "bin", data), recipe, keeping=keeping, on_epochs=on_epochs
    )


def assert_same_state(first, second):
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def assert_same(first, second):
    assert_same_state(first.state, second.state)
    for name in ("test_score", "val_score", "val_loss", "epoch", "epochs"):
        assert getattr(first, name) == getattr(second, name)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"schedule": "cosine", "warmup": 3, "dropout": 0.5, "hidden_norm": "batch"},
        {"patience": 4, "learning_rate": 0.3},
    ],
)
@pytest.mark.parametrize("stop", [1, 5])
def test_resumed_training_is_bit_identical(config, data, tmp_path, changes, stop):
    changes = {"epochs": 9, "learning_rate": 0.05, "dropout": 0.3, **changes}
    recipe = config.forms["full"].model_copy(update=changes)
    config = config.model_copy(update={"forms": {**config.forms, "bin": recipe}})
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    whole = train(config, data, tmp_path / "whole", recipe)
    with pytest.raises(Killed):
        train(config, data, tmp_path / "parts", recipe, stop_after=stop)
    torch.manual_seed(99)
    assert_same(whole, train(config, data, tmp_path / "parts", recipe))
    logs = [
        [json.loads(line) for line in (tmp_path / name / "run.jsonl").read_text().splitlines()]
        for name in ("whole", "parts")
    ]
    for rows in logs:
        assert [row["epoch"] for row in rows] == list(range(whole.epochs))
        for row in rows:
            del row["seconds"]
    assert logs[0] == logs[1]
    csv = (tmp_path / "parts" / "run.csv").read_text().splitlines()
    assert csv[0].startswith("epoch,train_loss,val_loss,train_score")
    assert len(csv) == 1 + whole.epochs


def test_time_between_checkpoints_is_kept(config, data, tmp_path):
    recipe = config.forms["full"]
    train(config, data, tmp_path, recipe, seconds=3600.0)
    assert not (tmp_path / "run.checkpoint").exists()
    assert len((tmp_path / "run.jsonl").read_text().splitlines()) == recipe.epochs


KILLED_RUN = """
import io, sys
from pathlib import Path
import torch
from rich.console import Console
from bitgnn.data import load_digits_graph
from bitgnn.train import RunOptions, RunStore, load_config, train_all
torch.set_num_threads(1)
config = load_config(sys.argv[1])
data = load_digits_graph()
store = RunStore(Path(sys.argv[2]), config)
train_all(config, lambda seed: data, store, Console(file=io.StringIO()), RunOptions("cpu", 0.0))
"""
KILLED_CONFIG = """
name: killed
dataset: {name: digits}
hidden_channels: 8
seeds: 1
forms:
  full: {epochs: 20, learning_rate: 0.05, dropout: 0.3}
  bin: {epochs: 150, learning_rate: 0.05, dropout: 0.3, start_from: full, distill: 1.0}
"""


@pytest.fixture
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.usefixtures("_one_thread")
def test_kill_9_loses_at_most_the_epoch_in_flight(tmp_path):
    (tmp_path / "killed.yaml").write_text(KILLED_CONFIG)
    config = load_config(tmp_path / "killed.yaml")
    digits = load_digits_graph()
    output = tmp_path / "parts"
    checkpoint = output / "runs" / "bin-0.checkpoint"
    command = [sys.executable, "-c", KILLED_RUN, str(tmp_path / "killed.yaml"), str(output)]
    process = subprocess.Popen(command)
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline and not checkpoint.exists():
        time.sleep(0.001)
    seen = read_checkpoint(checkpoint).values["epoch"]
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    # Nothing that was written before the kill is lost, and what is there is whole.
    left = read_checkpoint(checkpoint).values["epoch"]
    assert seen <= left < config.forms["bin"].epochs
    stores = [RunStore(path, config) for path in (output, tmp_path / "whole")]
    for store in stores:
        train_all(config, lambda seed: digits, store, QUIET, EVERY_EPOCH)
    for form in ("full", "bin"):
        parts, whole = (store.load(form, 0) for store in stores)
        assert_same_state(parts[1], whole[1])
        assert dataclasses.replace(parts[0], seconds=0) == dataclasses.replace(whole[0], seconds=0)
    assert not checkpoint.exists()
    assert not list((output / "runs").glob(".*"))


def test_checkpoint_of_another_model_names_the_keys(config, data, tmp_path):
    recipe = config.forms["full"]
    session = NodeSession(build_model(config, "full", data), recipe)
    session.finished([0.0] * 7)
    session.save(tmp_path / "a")
    other = NodeSession(
        build_model(config.model_copy(update={"num_layers": 3}), "full", data), recipe
    )
    before = {name: tensor.clone() for name, tensor in other.model.state_dict().items()}
    with pytest.raises(CheckpointError, match=r"convs\.2\.lin\.weight is missing") as caught:
        other.resume(tmp_path / "a")
    assert r"convs.1.lin.weight is [3, 8], must be [8, 8]" in str(caught.value)
    for name, tensor in other.model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_checkpoint_of_another_recipe_is_refused(config, data, tmp_path):
    recipe = config.forms["full"]
    session = NodeSession(build_model(config, "full", data), recipe)
    session.finished([0.0] * 7)
    session.save(tmp_path / "a")
    other = recipe.model_copy(update={"learning_rate": 0.5})
    with pytest.raises(CheckpointError, match=r"learning_rate 0\.01 there, 0\.5 here"):
        NodeSession(build_model(config, "full", data), other).resume(tmp_path / "a")


def test_damaged_checkpoint_is_named_and_kept(config, data, tmp_path):
    file = tmp_path / "damaged"
    write_checkpoint(file, Checkpoint({"model": {"a": torch.ones(3)}}, {"epoch": 1}))
    whole = file.read_bytes()
    for content in (whole[:-2], b"", b"no checkpoint at all"):
        file.write_bytes(content)
        with pytest.raises(CheckpointError, match="damaged: no readable checkpoint"):
            read_checkpoint(file)
        assert file.read_bytes() == content
    write_checkpoint(file, Checkpoint({"model": {"a": torch.ones(3)}}, {"format": 7}))
    with pytest.raises(CheckpointError, match="format must be 2, got 7"):
        read_checkpoint(file)
    assert read_checkpoint(tmp_path / "absent") is None


def test_interrupted_write_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    file = tmp_path / "run"
    write_checkpoint(file, Checkpoint({"model": {"a": torch.ones(3)}}, {"epoch": 1}))

    def fails(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fails)
    with pytest.raises(OSError, match="disk full"):
        write_checkpoint(file, Checkpoint({"model": {"a": torch.zeros(3)}}, {"epoch": 2}))
    assert read_checkpoint(file).values["epoch"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


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


def test_start_from_a_form_with_other_norms(config, data, tmp_path):
    forms = dict(config.forms)
    forms["bin"] = forms["bin"].model_copy(update={"hidden_norm": "batch"})
    forms["bin_plain"] = forms["bin"].model_copy(
        update={"precision": "bin", "hidden_norm": None, "start_from": "bin", "teachers": ("full",)}
    )
    config = config.model_copy(update={"forms": forms, "seeds": 1})
    runs = train_all(config, lambda seed: data, RunStore(tmp_path, config), QUIET, EVERY_EPOCH)
    assert [run.form for run in runs] == ["fp32", "full", "bin", "bin_plain"]
