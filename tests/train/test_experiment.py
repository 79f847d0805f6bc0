"""Training: selection by validation, several seeds, stopping and going on, results."""

import csv
import io
import json

import pytest
import torch
from rich.console import Console

from bitgnn.data import DataError
from bitgnn.inference import load
from bitgnn.train import (
    GraphSource,
    MismatchError,
    OutputError,
    RunStore,
    build,
    deploy,
    evaluate,
    train_all,
    write_results,
)
from bitgnn.train import (
    run as training_run,
)
from bitgnn.train.build import build_model, make_task, restore_model
from bitgnn.train.loop import train_model

QUIET = Console(file=io.StringIO())


def test_state_is_that_of_the_lowest_validation_loss(config, data):
    model = build_model(config, "full", data)
    losses = []

    def watch(count):
        if count:
            model.eval()
            with torch.no_grad():
                logits = model(data.x, data.edge_index)[data.val_mask]
            losses.append(torch.nn.functional.cross_entropy(logits, data.y[data.val_mask]).item())

    recipe = config.forms["full"].model_copy(update={"epochs": 25, "learning_rate": 0.3})
    trained = train_model(model, make_task(config, "full", data), recipe, on_epochs=watch)
    assert len(losses) == 25
    assert trained.epoch == losses.index(min(losses)) < 24
    assert trained.val_loss == pytest.approx(min(losses))
    right = model(data.x, data.edge_index).argmax(1) == data.y
    assert trained.test_score == pytest.approx(right[data.test_mask].float().mean().item())


def test_all_forms_and_seeds_are_trained_and_stored(config, data, graphs, tmp_path):
    store = RunStore(tmp_path / "out", config)
    runs = train_all(config, graphs, store, QUIET)
    assert [(run.form, run.seed) for run in runs] == [
        (form, seed) for seed in (0, 1) for form in ("fp32", "full", "bin")
    ]
    run, state = store.load("bin", 1)
    assert run == runs[-1]
    model = restore_model(config, "bin", data, state)
    right = model(data.x, data.edge_index).argmax(1) == data.y
    assert run.test_score == pytest.approx(right[data.test_mask].float().mean().item())
    assert {path.suffix for path in store.runs.iterdir()} == {
        ".json", ".safetensors", ".csv", ".jsonl"
    }  # fmt: skip


def test_same_seed_same_result(config, graphs, tmp_path):
    stores = [RunStore(tmp_path / name, config) for name in ("a", "b")]
    first, second = (train_all(config, graphs, store, QUIET) for store in stores)
    strip = [(run.form, run.seed, run.val_loss, run.test_score) for run in first]
    assert strip == [(run.form, run.seed, run.val_loss, run.test_score) for run in second]
    assert first[1].val_loss != first[4].val_loss


def test_interrupted_training_goes_on(config, graphs, tmp_path, monkeypatch):
    store = RunStore(tmp_path, config)
    trained = []
    real = training_run.train_model

    def interrupted(*arguments, **keywords):
        if len(trained) == 4:
            raise KeyboardInterrupt
        trained.append(1)
        return real(*arguments, **keywords)

    monkeypatch.setattr(training_run, "train_model", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_all(config, graphs, store, QUIET)
    assert len(list(store.runs.glob("*.json"))) == 4

    # A run whose weights were cut off does not count.
    weights = store.runs / "fp32-0.safetensors"
    weights.write_bytes(weights.read_bytes()[:-20])
    again = []

    def counted(*arguments, **keywords):
        again.append(1)
        return real(*arguments, **keywords)

    monkeypatch.setattr(training_run, "train_model", counted)
    assert len(train_all(config, graphs, RunStore(tmp_path, config), QUIET)) == 6
    assert len(again) == 3


def test_other_configuration_is_noticed(config, graphs, tmp_path):
    other = config.model_copy(update={"hidden_channels": 16})
    RunStore(tmp_path, other)  # nothing was trained with it
    train_all(config.model_copy(update={"seeds": 1}), graphs, RunStore(tmp_path, config), QUIET)
    RunStore(tmp_path, config.model_copy(update={"seeds": 5}))
    with pytest.raises(OutputError, match="hidden_channels: 8 there, 16 here"):
        RunStore(tmp_path, other)


def test_leftovers_of_a_kill_are_removed(config, graphs, tmp_path):
    config = config.model_copy(update={"seeds": 1})
    store = RunStore(tmp_path, config)
    train_all(config, graphs, store, QUIET)
    left = [store.runs / name for name in ("bin-0.checkpoint", ".bin-0.json.x", ".bin-0-log.csv.y")]
    other = store.runs / ".bin-01.json.x"
    for path in (*left, other):
        path.write_bytes(b"half")
    train_all(config, graphs, RunStore(tmp_path, config), QUIET)
    assert not any(path.exists() for path in left)
    assert other.exists()


def test_fewer_splits_than_seeds_is_noticed_first(config, data, monkeypatch):
    asked = []

    def load(name, root, *, split, **_):
        asked.append(split)
        if split > 3:
            raise ValueError(f"split must be 'random' or from 0 to 3, got {split}")
        return data

    monkeypatch.setattr(build, "load", load)
    dataset = config.dataset.model_copy(update={"split": "seed"})
    config = config.model_copy(update={"dataset": dataset, "seeds": 5})
    with pytest.raises(DataError, match=r"dataset: split must be .* got 4"):
        GraphSource(config).check()
    assert asked == [4]


def test_unwritable_folder_is_noticed_first(config, tmp_path):
    # A file in its place, because root may write into any folder.
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputError, match="cannot be written"):
        RunStore(tmp_path / "file", config)
    with pytest.raises(OutputError, match=r"cannot be written \(Not a directory\)"):
        RunStore(tmp_path / "file" / "below", config)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.fixture
def evaluated(config, graphs, tmp_path):
    store = RunStore(tmp_path, config)
    runs = train_all(config, graphs, store, QUIET)
    return store, runs, evaluate(config, graphs, store, runs, repeats=7)


def test_results_on_disk(config, data, tmp_path, evaluated):
    _, runs, results = evaluated
    write_results(tmp_path, config, data, results)
    record = json.loads((tmp_path / "results.json").read_text())
    assert record["environment"]["versions"]["torch"] == torch.__version__
    assert record["graph"]["nodes"] == 90
    assert len(record["forms"]["bin"]["runs"]) == 2
    assert record["forms"]["bin"]["frozen_equals_trained"] is True
    accuracies = [100 * run.test_score for run in runs if run.form == "bin"]
    assert record["forms"]["bin"]["score_mean_percent"] == pytest.approx(sum(accuracies) / 2)
    spread = abs(accuracies[0] - accuracies[1]) / 2**0.5
    assert record["forms"]["bin"]["score_std_points"] == pytest.approx(spread)
    rows = list(csv.DictReader((tmp_path / "results.csv").open()))
    assert [row["form"] for row in rows] == ["PyG fp32", "bitgnn full", "bitgnn bin"]
    assert int(rows[2]["peak_bytes"]) < int(rows[0]["peak_bytes"])
    assert (tmp_path / "results.png").read_bytes().startswith(b"\x89PNG")
    packed = load(tmp_path / "model-bin")
    frozen = results[2].frozen
    assert torch.equal(packed(data.x, data.edge_index), frozen(data.x, data.edge_index))


def test_frozen_model_that_differs_stops_the_evaluation(config, graphs, evaluated, monkeypatch):
    store, runs, _ = evaluated
    real = deploy.freeze

    def wrong(model):
        frozen = real(model)
        frozen.get_buffer(frozen.program.steps[1].tensors["weight"]).bitwise_not_()
        return frozen

    monkeypatch.setattr(deploy, "freeze", wrong)
    with pytest.raises(MismatchError, match="the frozen model differs from the trained one"):
        evaluate(config, graphs, store, runs, repeats=7)
