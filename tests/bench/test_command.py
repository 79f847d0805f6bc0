"""What benchmark commands share: arguments, finished cases kept, failures recorded; operators."""

import json
from argparse import Namespace
from functools import partial

import pytest
import torch

from bench.command import begin, run_into
from bench_ops import main as operators_main


def test_quick_run_of_the_operators(tmp_path):
    output = tmp_path / "out" / "ops.json"
    arguments = ["--quick", "--repeats", "7", "--threads", "1", "--output", str(output)]
    assert operators_main([*arguments, "--data-root", str(tmp_path)]) == 1
    record = json.loads(output.read_text())
    assert record["benchmark"] == "ops"
    assert record["settings"] == {"threads": 1, "repeats": 7, "quick": True}
    assert record["environment"]["threads"] == 1
    for result in record["results"]:
        assert len(result["ours"]["seconds"]) == 7
        assert result["target"] is None
        assert result["best_baseline"] in result["baselines"]
    table = output.with_suffix(".md").read_text()
    assert all(result["name"] in table for result in record["results"])
    assert output.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert [entry["name"] for entry in record["skipped"]] == ["Flickr"]


NO_DEVICE = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--repeats", "3"), "--repeats must be at least 7, got 3"),
        (("--threads", "0"), "--threads must be at least 1, got 0"),
        (("--nonsense",), "unrecognized arguments: --nonsense"),
        pytest.param(("--device", "cuda"), "torch sees no CUDA device", marks=NO_DEVICE),
    ],
)
def test_bad_arguments(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        operators_main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def arguments(tmp_path):
    return Namespace(
        device="cpu", threads=1, repeats=7, quick=True, resume=False, output=tmp_path / "some.json"
    )


def fail(error):
    raise error


def test_a_case_that_fails_leaves_the_others(arguments):
    found = begin("some", arguments)
    run = partial(run_into, found, arguments.output, "group")
    assert run("one", lambda: {"name": "one"}) == {"name": "one"}
    assert run("two", partial(fail, ValueError("no room"))) is None
    for lost in (KeyboardInterrupt(), torch.AcceleratorError("the device is lost")):
        with pytest.raises(type(lost)):
            run("three", partial(fail, lost))
    record = json.loads(arguments.output.read_text())
    assert record["results"] == [{"name": "one"}]
    assert record["failed"] == [{"group": "group", "name": "two", "reason": "ValueError: no room"}]


@pytest.mark.parametrize("what", ["commit", "repeats"])
def test_finished_cases_are_kept_unless_they_are_of_another_run(arguments, capsys, what):
    run_into(begin("some", arguments), arguments.output, "group", "one", lambda: {"name": "one"})
    arguments.resume = True
    assert begin("some", arguments)["results"] == [{"name": "one"}]
    record = json.loads(arguments.output.read_text())
    (record["environment"] if what == "commit" else record["settings"])[what] = 99
    arguments.output.write_text(json.dumps(record))
    assert begin("some", arguments) is None
    error = capsys.readouterr().err
    assert "do not belong to this run" in error
    assert what in error
