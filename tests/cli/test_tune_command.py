"""`bitgnn tune`: files on success, one line and a status on failure."""

import builtins
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from bitgnn import cli
from bitgnn.cli import app
from bitgnn.convert import Plan
from bitgnn.data import load as load_data
from bitgnn.inference import load as read_model
from bitgnn.train.build import make_task
from bitgnn.train.loop import train_model
from bitgnn.train.recipe import Recipe
from bitgnn.tune import budget, command, search, training

runner = CliRunner()
QUICK = ["tune", "--dataset", "digits", "--epochs", "1", "--hidden", "8", "--threads", "1"]
PINS = ["--pin", "convs.0=FBB+BBB", "--pin", "convs.1=BBF+F*F"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the models are trained once."""
    return tmp_path_factory.mktemp("tune") / "out"


def _one_line(result):
    assert result.exit_code == 1, result.output
    lines = [line for line in result.stderr.splitlines() if line.startswith("bitgnn: ")]
    assert len(lines) == 1
    return lines[0]


def _tune(folder, *more):
    return runner.invoke(app, [*QUICK, *PINS, "-o", str(folder), *more])


def test_writes_result_and_packed_model(folder):
    result = _tune(folder, "--apply", "--constraint", "accuracy drop <= 50%")
    assert result.exit_code == 0, result.output
    plan = Plan.load(folder / "plan.yaml")
    assert read_model(folder / "model").features == plan.features
    assert plan.letters["convs.0"] == "FBB+BBB"
    assert {"tune.csv", "tune.json", "tune.png", "tune.db"} <= {
        path.name for path in folder.iterdir()
    }
    assert result.stdout.startswith("Take convs.0 FBB+BBB")


@pytest.mark.parametrize(("own", "is_up"), [(cli.OWN_PROCESS, True), (None, False)])
def test_starting_counts_where_the_process_is_for_the_command_alone(
    folder, monkeypatch, own, is_up
):
    monkeypatch.setattr(budget, "age_of_process", lambda: 1e6)
    arguments = [*QUICK, *PINS, "-o", str(folder), "--budget", "10 min"]
    arguments += ["--storage", str(folder / f"{is_up}.db"), "--constraint", "accuracy drop <= 50%"]
    result = runner.invoke(app, arguments, obj=own)
    assert result.exit_code == 0, result.output
    assert ("The time was up" in result.output) is is_up


def test_limits_that_nobody_keeps_are_the_first_line_and_the_status(folder):
    shutil.rmtree(folder / "model", ignore_errors=True)
    result = _tune(folder, "--constraint", "memory <= 1 B", "--apply")
    assert result.exit_code == cli.LIMITS_MISSED
    first = result.stdout.splitlines()[0]
    assert first.startswith("No plan is recommended: memory <= 1 B cannot be met")
    assert "times as fast" not in result.stdout
    assert "Take " not in result.stdout
    plan = Plan.load(folder / "plan.yaml")
    assert plan.notes["keeps_limits"] is False
    assert plan.notes["reasons"][0] == first
    assert not (folder / "model").exists()
    assert "The packed model is not written" in result.stdout


def test_a_graph_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    y = np.arange(40) % 2
    x = np.random.default_rng(0).standard_normal((40, 8)) + 2 * y[:, None]
    np.savez("mine.npz", x=x, y=y, edges=np.stack([y, 1 - y], axis=1))
    arguments = [*QUICK, *PINS, "--data", str(tmp_path / "mine.npz")]
    result = runner.invoke(app, [*arguments, "--constraint", "accuracy drop <= 100%"])
    assert result.exit_code == 0, result.output
    assert Plan.load(tmp_path / "bitgnn-tune" / "gcn-mine" / "plan.yaml").letters


def test_help_tells_of_the_status():
    said = runner.invoke(app, ["tune", "--help"]).output
    assert "3 no plan keeps them" in " ".join(said.split())


def test_a_budget_that_is_too_short_for_fp32_is_said_first(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "FLOATS_BY", 0.0)
    more = ["--budget", "10 min", "--constraint", "accuracy drop <= 100%"]
    more += ["--epochs", "2"]
    result = runner.invoke(app, [*QUICK, *PINS, "-o", str(tmp_path / "out"), *more])
    assert result.exit_code == cli.LIMITS_MISSED, result.output
    first = result.stdout.splitlines()[0]
    assert "it is not known whether accuracy drop <= 100.00% is kept" in first
    assert "time for 1 of up to 2 epochs of fp32" in first


def test_time_left_over_makes_plans_better(folder, monkeypatch):
    """Weights that were trained behind the search count where they are better."""
    data = load_data("digits")
    config = training.short_experiment("gcn", "digits", 8, 60)
    model = training.form_model(config, "bin", data)
    train_model(model, make_task(config, "bin", data), Recipe(epochs=60, learning_rate=0.02))
    before = json.loads((folder / "tune.json").read_text())
    whole = command.train_short

    def better(*arguments, **options):
        found = whole(*arguments, **options)
        return replace(found, more=lambda: iter([("seed 7", model)]))

    monkeypatch.setattr(command, "train_short", better)
    result = _tune(folder, "--constraint", "accuracy drop <= 50%", "--apply")
    assert result.exit_code == 0, result.output
    assert "The remaining time went into 1 more training run (seed 7)" in result.stdout
    found = json.loads((folder / "tune.json").read_text())
    accuracy = found["recommended"]["notes"]["accuracy"]
    assert accuracy > before["recommended"]["notes"]["accuracy"]
    frozen = read_model(folder / "model")
    x = frozen.pack_features(data.x) if frozen.features == "packed" else data.x
    logits = frozen(x, frozen.prepare_graph(data.edge_index, data.num_nodes))
    share = (logits.argmax(-1) == data.y)[data.val_mask].double().mean()
    assert float(share) == pytest.approx(accuracy)


def test_interrupt_says_how_to_go_on(folder, monkeypatch):
    def stopped(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(search.Search, "measure", stopped)
    result = _tune(folder)
    assert result.exit_code == 130
    assert "the same call goes on" in result.stderr


def test_interrupt_while_training_says_how_to_go_on(tmp_path, monkeypatch):
    done, whole = [], training.train_model

    def stopped(*arguments, **options):
        if done:
            raise KeyboardInterrupt
        done.append(whole(*arguments, **options))
        return done[0]

    monkeypatch.setattr(training, "train_model", stopped)
    result = _tune(tmp_path / "out")
    assert result.exit_code == 130
    assert "stopped while training" in result.stderr
    assert [path.name for path in (tmp_path / "out" / "runs").glob("*.json")] == ["fp32-0.json"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--objective", "speed"], "objective must be one of"),
        (["--constraint", "fast"], "must have the form"),
        (["--budget", "soon"], "budget must be a time"),
        (["--model", "gat"], "model must be one of ['gcn', 'graphsage', 'graphsaint'], got 'gat'"),
        (["--dataset", "digitz"], "name must be one of"),
        (["--pin", "convs.9=FBB"], "pins name the layer 'convs.9'"),
        (["--pin", "convs.0=FBB+BBB", "--pin", "convs.1=FFF+FFF"], "no letters that fit together"),
        (["--storage", "."], "is a folder"),
        (["--storage", __file__], "is no file of trials"),
    ],
)
def test_mistyped_options_are_one_line_and_touch_nothing(tmp_path, more, said):
    result = runner.invoke(app, [*QUICK, "-o", str(tmp_path / "out"), *more])
    assert said in _one_line(result)
    assert not (tmp_path / "out").exists()


def test_interrupt_in_the_time_left_keeps_what_was_found(folder, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    (folder / "plan.yaml").unlink(missing_ok=True)
    monkeypatch.setattr(command, "improved", stopped)
    result = _tune(folder, "--constraint", "accuracy drop <= 50%")
    assert result.exit_code == 130
    assert f"what was found before is kept in {folder}" in result.stderr
    assert Plan.load(folder / "plan.yaml").notes["keeps_limits"] is True


def test_interrupt_while_importing_is_a_status(monkeypatch):
    def stopped(name, *arguments):
        if name == "bitgnn.train":
            raise KeyboardInterrupt
        return whole(name, *arguments)

    whole = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", stopped)
    result = runner.invoke(app, ["doctor"])
    assert (result.exit_code, result.output) == (130, "")


def test_pins_are_read_before_the_graph_is(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise AssertionError("loaded")

    monkeypatch.setattr(command, "load", fail)
    result = runner.invoke(app, [*QUICK, "-o", str(tmp_path / "out"), "--pin", "foo"])
    assert "a pin must read like 'first layer stays F'" in _one_line(result)


def test_nothing_of_the_libraries_behind_is_said(tmp_path):
    arguments = ["tune", "--dataset", "", "-o", str(tmp_path / "out")]
    line = _one_line(runner.invoke(app, arguments))
    assert "pydantic" not in line
    assert "dataset.name" in line
