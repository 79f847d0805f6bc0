"""`bitgnn tune`: files on success, one line and a status on failure."""

import json

import numpy as np
import pytest

import bitgnn
from bitgnn import cli
from bitgnn.distillation.named import NamedModel
from bitgnn.tune import command, tuner

QUICK = ["tune", "--epochs", "1", "--hidden", "8", "--widen", "1", "--threads", "1"]
DIGITS = ["--data", "digits"]
PINS = ["--pin", "convs.0=bin", "--pin", "convs.1=fp32"]
LOOSE = ["--constraint", "accuracy drop <= 100%"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the candidate is distilled once."""
    return tmp_path_factory.mktemp("tune") / "out"


@pytest.fixture
def calls(monkeypatch):
    """Models and arguments with which the tuner would have been called."""
    found = []

    def caught(model, data, **options):
        found.append((model, options))
        raise ValueError("enough")

    monkeypatch.setattr(command, "tune", caught)
    return found


def test_writes_the_report_and_the_packed_model(run, folder):
    result = run(*QUICK, *DIGITS, *PINS, "-o", folder, *LOOSE)
    assert result.stdout.startswith("Take bin, fp32 ×1: the best latency of 1.\n")
    assert {"tune.json", "tune.png", "model", "candidates"} <= {p.name for p in folder.iterdir()}
    (point,) = json.loads((folder / "tune.json").read_text())["points"]
    assert point["precisions"] == {"convs.0": "bin", "convs.1": "fp32"}
    assert bitgnn.load(folder / "model").out_channels == 10


def test_limits_that_nobody_keeps_are_the_first_line_and_the_status(run, folder):
    limit = ["--constraint", "memory <= 1 B"]
    result = run(*QUICK, *DIGITS, *PINS, "-o", folder, *limit, status=cli.LIMITS_MISSED)
    first = result.stdout.splitlines()[0]
    assert first.startswith("None is recommended: no candidate keeps memory <= 1 B; the nearest, ")
    assert "Take " not in result.stdout
    assert json.loads((folder / "tune.json").read_text())["missed"] in first


def test_interrupt_says_how_to_go_on(run, folder, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(tuner, "measure_in_turns", stopped)
    result = run(*QUICK, *DIGITS, *PINS, "-o", folder, status=130)
    assert "1 of 1 candidates are distilled; they are kept in" in result.stderr
    assert "the same call goes on" in result.stderr


def test_options_left_out_are_defaults_of_the_function_and_starting_counts(run, calls, tmp_path):
    run("tune", *DIGITS, "-o", tmp_path, "--budget", "60s", status=1)
    ((_, options),) = calls
    assert 0 < options.pop("budget") < 60
    assert options == {
        "objective": "latency", "trained": False, "seed": 0, "output": tmp_path,
    }  # fmt: skip
    for made in (NamedModel(state=tmp_path), NamedModel("package.module:model")):
        assert made.is_trained is None  # its scores tell


def test_options_are_arguments_of_the_function(run, calls, tmp_path):
    more = ["--precision", "bin", "--precision", "full", "--widen", "3", "--epochs", "7"]
    run("tune", *DIGITS, "-o", tmp_path, *more, *PINS, *LOOSE, "--seed", "5", status=1)
    ((_, options),) = calls
    assert options == {
        "objective": "latency", "constraints": [LOOSE[1]], "precisions": ["bin", "full"],
        "pins": [PINS[1], PINS[3]], "widen": [3.0], "epochs": 7, "trained": False, "budget": None,
        "seed": 5, "output": tmp_path,
    }  # fmt: skip


def test_a_graph_and_a_model_of_ones_own(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    y = np.arange(40) % 2
    x = np.random.default_rng(0).standard_normal((40, 8)) + 2 * y[:, None]
    np.savez("mine.npz", x=x, y=y, edges=np.stack([y, 1 - y], axis=1))
    run(*QUICK, "--model", "sage", "--data", tmp_path / "mine.npz", *PINS, *LOOSE)
    assert bitgnn.load(tmp_path / "bitgnn-tune" / "sage-mine" / "model").out_channels == 2


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--objective", "speed"], "objective must be one of"),
        (["--constraint", "fast"], "must have the form"),
        (["--budget", "soon"], "budget must be a time"),
        (["--model", "gat"], "model must be one of ['gcn', 'sage', 'graphconv', 'indgcn'"),
        (["--data", "digitz"], "name must be one of"),
        (["--pin", "foo"], "pins must read like 'conv1=fp32'"),
        (["--pin", "convs.9=bin"], "pins name the layer 'convs.9'"),
        (["--precision", "fp32"], "leave no binary model"),
        (["--precision", "float16"], "precisions: "),
    ],
)
def test_mistyped_options_are_one_line_and_touch_nothing(refused, tmp_path, more, said):
    assert said in refused(*QUICK, *DIGITS, "-o", tmp_path / "out", *more)
    assert not (tmp_path / "out").exists()
