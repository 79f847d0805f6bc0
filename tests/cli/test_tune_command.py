"""`bitgnn tune`: files on success, one line and a status on failure."""

import builtins
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

from bitgnn import cli
from bitgnn.cli import app
from bitgnn.convert import Plan
from bitgnn.distillation.named import NamedModel
from bitgnn.inference import load as read_model
from bitgnn.tune import command, objective, search
from bitgnn.tune.command import TuneCommand

runner = CliRunner()
QUICK = ["tune", "--epochs", "1", "--hidden", "8", "--widen", "1", "--threads", "1"]
DIGITS = ["--data", "digits"]
PINS = ["--pin", "convs.0=FBB+BBF", "--pin", "convs.1=FBF+F*F"]
LOOSE = ["--constraint", "accuracy drop <= 100%"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the students are distilled once."""
    return tmp_path_factory.mktemp("tune") / "out"


def _one_line(result):
    assert result.exit_code == 1, result.output
    lines = [line for line in result.stderr.splitlines() if line.startswith("bitgnn: ")]
    assert len(lines) == 1
    return lines[0]


def _tune(folder, *more):
    return runner.invoke(app, [*QUICK, *DIGITS, *PINS, "-o", str(folder), *more])


def test_writes_result_and_packed_model(folder):
    result = _tune(folder, "--apply", *LOOSE)
    assert result.exit_code == 0, result.output
    plan = Plan.load(folder / "plan.yaml")
    assert read_model(folder / "model").features == plan.features
    assert plan.letters["convs.0"] == "FBB+BBF"
    assert {"tune.csv", "tune.json", "tune.png", "tune.db", "students"} <= {
        path.name for path in folder.iterdir()
    }
    assert result.stdout.startswith("Take convs.0 FBB+BBF")


@pytest.mark.parametrize(("own", "is_up"), [(cli.OWN_PROCESS, True), (None, False)])
def test_starting_counts_where_the_process_is_for_the_command_alone(
    monkeypatch, tmp_path, own, is_up
):
    spent = []

    def counted(command, console):
        spent.append(command.spent)
        raise ValueError("enough")

    monkeypatch.setattr(objective, "age_of_process", lambda: 1e6)
    monkeypatch.setattr(command, "run_tune", counted)
    runner.invoke(app, [*QUICK, *DIGITS, "-o", str(tmp_path)], obj=own)
    assert spent == [1e6 if is_up else 0.0]


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


def test_a_graph_and_a_model_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    y = np.arange(40) % 2
    x = np.random.default_rng(0).standard_normal((40, 8)) + 2 * y[:, None]
    np.savez("mine.npz", x=x, y=y, edges=np.stack([y, 1 - y], axis=1))
    arguments = [*QUICK, "--model", "sage", "--data", str(tmp_path / "mine.npz"), *PINS, *LOOSE]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert Plan.load(tmp_path / "bitgnn-tune" / "sage-mine" / "plan.yaml").letters


def test_help_tells_of_the_status():
    said = runner.invoke(app, ["tune", "--help"]).output
    assert "3 no plan keeps them" in " ".join(said.split())


def test_defaults_are_those_of_the_command_line(tmp_path, monkeypatch):
    found = []

    def caught(command, console):
        found.append(command)
        raise ValueError("enough")

    monkeypatch.setattr(command, "run_tune", caught)
    runner.invoke(app, ["tune", *DIGITS, "-o", str(tmp_path)])
    assert found == [TuneCommand("digits", output=tmp_path)]
    assert found[0].model.is_trained is False
    for made in (NamedModel(state=tmp_path), NamedModel("package.module:model")):
        assert made.is_trained is None  # its scores tell


def test_interrupt_says_how_to_go_on(folder, monkeypatch):
    def stopped(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(search.Search, "measure", stopped)
    result = _tune(folder)
    assert result.exit_code == 130
    assert "the same call goes on" in result.stderr


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--objective", "speed"], "objective must be one of"),
        (["--constraint", "fast"], "must have the form"),
        (["--budget", "soon"], "budget must be a time"),
        (["--model", "gat"], "model must be one of ['gcn', 'sage', 'graphconv', 'indgcn'"),
        (["--data", "digitz"], "name must be one of"),
        (["--pin", "foo"], "a pin must read like 'first layer stays F'"),
        (["--pin", "convs.9=FBB"], "pins name the layer 'convs.9'"),
        (["--pin", "convs.0=FBB+BBB"], "no letters that fit together"),
        (["--storage", "."], "is a folder"),
        (["--storage", __file__], "is no file of trials"),
    ],
)
def test_mistyped_options_are_one_line_and_touch_nothing(tmp_path, more, said):
    result = runner.invoke(app, [*QUICK, *DIGITS, "-o", str(tmp_path / "out"), *more])
    assert said in _one_line(result)
    assert not (tmp_path / "out").exists()


def test_interrupt_while_importing_is_a_status(monkeypatch):
    def stopped(name, *arguments):
        if name == "bitgnn.train":
            raise KeyboardInterrupt
        return whole(name, *arguments)

    whole = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", stopped)
    result = runner.invoke(app, ["doctor"])
    assert (result.exit_code, result.output) == (130, "")
