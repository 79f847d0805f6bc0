"""Scripts without their data: one line on stderr, exit status 1, and no record written."""

import importlib
import json

import pytest

from bench import command
from bench.command import Unmeasured, exits_with_status, save_record
from bitgnn.data import DataError

BENCHMARKS = {
    "bench_layers": (),
    "bench_stream": (),
    "bench_tune_runs": ("--only", "cora_sage"),
    "bench_models": ("--only", "cora", "flickr"),
}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_without_data_a_record_stays_as_it_was(tmp_path, monkeypatch, capfd, name):
    script = importlib.import_module(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if name == "bench_models":
        monkeypatch.setattr(script, "_rates", lambda arguments: ([], None, None))
    empty = tmp_path / "empty"
    empty.mkdir()
    empty.chmod(0o500)  # nothing is downloaded into it
    output = tmp_path / "kept.json"
    before = json.dumps({"results": [{"key": "other"}]})
    output.write_text(before)
    arguments = [*BENCHMARKS[name], "--data-root", str(empty), "--output", str(output)]
    assert script.main(arguments) == 1
    lines = [line for line in capfd.readouterr().err.splitlines() if not line.endswith("...")]
    assert len(lines) == 1, lines
    assert lines[0].startswith(f"{name}: error: ")
    assert str(empty) in lines[0]
    assert output.read_text() == before


def test_records_are_left_in_the_folder_at_hand():
    assert command.parse("", {"cpu": "some"}, ["--repeats", "7"]).output.parts == ("some.json",)


def test_a_record_without_figures_is_not_written(tmp_path):
    lost = {"results": [], "skipped": [{"name": "Cora", "reason": "no files"}]}
    with pytest.raises(Unmeasured, match="is not written: Cora: no files"):
        save_record(tmp_path / "record.json", lost)
    assert list(tmp_path.iterdir()) == []


def test_other_errors_are_not_hidden(capsys):
    @exits_with_status
    def main(error):
        raise error

    assert main(DataError("Cora:\n no files")) == 1
    assert capsys.readouterr().err == "test_entry: error: Cora: no files\n"
    with pytest.raises(KeyError):
        main(KeyError("key"))
