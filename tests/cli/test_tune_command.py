"""`bitgnn tune`: files on success, one line and a status on failure."""

import shutil

import numpy as np
import pytest

from bitgnn import cli
from bitgnn.convert import Plan
from bitgnn.distillation.named import NamedModel
from bitgnn.inference import load as read_model
from bitgnn.tune import command, objective, search
from bitgnn.tune.command import TuneCommand

QUICK = ["tune", "--epochs", "1", "--hidden", "8", "--widen", "1", "--threads", "1"]
DIGITS = ["--data", "digits"]
PINS = ["--pin", "convs.0=FBB+BBF", "--pin", "convs.1=FBF+F*F"]
LOOSE = ["--constraint", "accuracy drop <= 100%"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the students are distilled once."""
    return tmp_path_factory.mktemp("tune") / "out"


@pytest.fixture
def commands(monkeypatch):
    """What would have been tuned."""
    found = []

    def caught(command, console):
        found.append(command)
        raise ValueError("enough")

    monkeypatch.setattr(command, "run_tune", caught)
    return found


def test_writes_result_and_packed_model(run, folder):
    result = run(*QUICK, *DIGITS, *PINS, "-o", folder, "--apply", *LOOSE)
    plan = Plan.load(folder / "plan.yaml")
    assert read_model(folder / "model").features == plan.features
    assert plan.letters["convs.0"] == "FBB+BBF"
    names = {path.name for path in folder.iterdir()}
    assert {"tune.csv", "tune.json", "tune.png", "tune.db", "students"} <= names
    assert result.stdout.startswith("Take convs.0 FBB+BBF")


def test_limits_that_nobody_keeps_are_the_first_line_and_the_status(run, folder):
    shutil.rmtree(folder / "model", ignore_errors=True)
    limit = ["--constraint", "memory <= 1 B", "--apply"]
    result = run(*QUICK, *DIGITS, *PINS, "-o", folder, *limit, status=cli.LIMITS_MISSED)
    first = result.stdout.splitlines()[0]
    assert first.startswith("No plan is recommended: memory <= 1 B cannot be met")
    assert "times as fast" not in result.stdout
    assert "Take " not in result.stdout
    plan = Plan.load(folder / "plan.yaml")
    assert plan.notes["keeps_limits"] is False
    assert plan.notes["reasons"][0] == first
    assert not (folder / "model").exists()
    assert "The packed model is not written" in result.stdout


def test_interrupt_says_how_to_go_on(run, folder, monkeypatch):
    def stopped(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(search.Search, "measure", stopped)
    result = run(*QUICK, *DIGITS, *PINS, "-o", folder, status=130)
    assert "the same call goes on" in result.stderr


@pytest.mark.parametrize(("own", "spent"), [(cli.OWN_PROCESS, 1e6), (None, 0.0)])
def test_starting_counts_where_the_process_is_for_the_command_alone(
    run, commands, monkeypatch, tmp_path, own, spent
):
    monkeypatch.setattr(objective, "age_of_process", lambda: 1e6)
    run(*QUICK, *DIGITS, "-o", tmp_path, obj=own, status=1)
    assert [found.spent for found in commands] == [spent]


def test_defaults_are_those_of_the_command_line(run, commands, tmp_path):
    run("tune", *DIGITS, "-o", tmp_path, status=1)
    assert commands == [TuneCommand("digits", output=tmp_path)]
    assert commands[0].model.is_trained is False
    for made in (NamedModel(state=tmp_path), NamedModel("package.module:model")):
        assert made.is_trained is None  # its scores tell


def test_a_graph_and_a_model_of_ones_own(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    y = np.arange(40) % 2
    x = np.random.default_rng(0).standard_normal((40, 8)) + 2 * y[:, None]
    np.savez("mine.npz", x=x, y=y, edges=np.stack([y, 1 - y], axis=1))
    run(*QUICK, "--model", "sage", "--data", tmp_path / "mine.npz", *PINS, *LOOSE)
    assert Plan.load(tmp_path / "bitgnn-tune" / "sage-mine" / "plan.yaml").letters


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
def test_mistyped_options_are_one_line_and_touch_nothing(refused, tmp_path, more, said):
    assert said in refused(*QUICK, *DIGITS, "-o", tmp_path / "out", *more)
    assert not (tmp_path / "out").exists()
