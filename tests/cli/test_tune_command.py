"""`bitgnn tune`: files on success, one line and a status on failure."""

import pytest
import torch
from typer.testing import CliRunner

from bitgnn import cli
from bitgnn.cli import app
from bitgnn.convert import Plan
from bitgnn.inference import load
from bitgnn.tune import budget, search, training

runner = CliRunner()
QUICK = ["tune", "--dataset", "digits", "--epochs", "1", "--hidden", "8", "--threads", "1"]
PINS = ["--pin", "convs.0=FBB+BBB", "--pin", "convs.1=BBF+F*F"]


@pytest.fixture(autouse=True)
def _keep_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


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
    assert load(folder / "model").defaults == plan.defaults
    assert plan.letters["convs.0"] == "FBB+BBB"
    assert {"tune.csv", "tune.json", "tune.png", "tune.db", "timings.json"} <= {
        path.name for path in folder.iterdir()
    }
    assert "Take convs.0 FBB+BBB" in result.output


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


def test_limit_that_nobody_keeps_is_one_line(folder):
    line = _one_line(_tune(folder, "--constraint", "memory <= 1 B"))
    assert "memory <= 1 B cannot be met" in line


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
        (["--model", "mlp"], "model"),
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
