"""The command line: results on success, one line and a status on failure."""

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import bitgnn
from bitgnn import train
from bitgnn._files import alone_in
from bitgnn.cli import app
from bitgnn.data import atomic_dataset
from bitgnn.inference import load
from bitgnn.train import command

runner = CliRunner()

TINY = """
name: tiny
dataset: {name: digits}
hidden: 8
epochs: 2
seeds: 1
"""


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY)
    return file


def _one_line(result):
    assert result.exit_code == 1
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("bitgnn: error: ")
    return lines[0]


def test_train_writes_everything(config, tmp_path):
    output = tmp_path / "out"
    arguments = ["train", "-c", str(config), "-o", str(output), "--threads", "1"]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    names = {path.name for path in output.iterdir()}
    assert {"results.json", "results.csv", "results.png", "model-full", "model-bin"} <= names
    assert load(output / "model-bin").in_channels == 61
    assert runner.invoke(app, arguments).exit_code == 0
    more = runner.invoke(app, [*arguments, "--seeds", "2"])
    assert "digits bin, seed 2 of 2: " in more.stdout
    config.write_text(TINY.replace("hidden: 8", "hidden: 16"))
    assert "hidden: 8 there, 16 here" in _one_line(runner.invoke(app, arguments))


def test_train_on_a_graph_of_ones_own(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    y = np.arange(30) % 2
    np.savez("mine.npz", x=np.stack([y, 1 - y], axis=1), y=y, edges=np.zeros((0, 2), np.int64))
    arguments = ["train", "-c", str(config), "--data", "mine.npz", "--threads", "1"]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "mine.npz: 30 nodes, 0 edges, 2 features" in result.stdout
    assert "mine.npz: has no masks; 60, 20 and 20 per cent" in result.stderr
    assert load(tmp_path / "bitgnn-train" / "tiny_mine" / "model-bin").in_channels == 2
    config.write_text(TINY.replace("digits", "none.npz"))
    assert "none.npz: no such file" in _one_line(runner.invoke(app, ["train", "-c", str(config)]))


def test_without_a_command_the_help_is_printed():
    result = runner.invoke(app, [])
    assert result.exit_code == 0
    assert result.output == runner.invoke(app, ["--help"]).output
    assert "--version  Print the version.\n" in result.output


def test_demo_uses_its_own_experiment(tmp_path, monkeypatch, config):
    small = train.load_config(config)
    asked = []

    def demo_config(seeds):
        asked.append(seeds)
        return small

    monkeypatch.setattr(train, "demo_config", demo_config)
    result = runner.invoke(app, ["demo", "-o", str(tmp_path / "demo"), "--seeds", "2"])
    assert result.exit_code == 0, result.output
    assert asked == [2]
    assert (tmp_path / "demo" / "results.png").is_file()


def test_mistyped_key_is_one_line_and_touches_nothing(config, tmp_path):
    config.write_text(TINY.replace("seeds: 1", "sedes: 1"))
    result = runner.invoke(app, ["train", "-c", str(config), "-o", str(tmp_path / "out")])
    assert "unknown key 'sedes'" in _one_line(result)
    assert not (tmp_path / "out").exists()


def test_unwritable_output_is_one_line(config, tmp_path):
    (tmp_path / "file").write_text("mine")
    result = runner.invoke(app, ["train", "-c", str(config), "-o", str(tmp_path / "file")])
    assert "cannot be written" in _one_line(result)
    assert (tmp_path / "file").read_text() == "mine"


def test_missing_data_is_one_line(config, tmp_path, monkeypatch):
    def offline(*_, **__):
        raise ConnectionError("offline")

    monkeypatch.setattr(atomic_dataset, "download_file", offline)
    config.write_text(TINY.replace("name: digits", "name: Cora"))
    arguments = ["train", "-c", str(config), "-o", str(tmp_path / "out")]
    result = runner.invoke(app, [*arguments, "--data-root", str(tmp_path / "none")])
    assert "Put ind.cora.x" in _one_line(result)


def test_unknown_data_set_is_one_line_and_can_be_mended(config, tmp_path):
    good = config.read_text()
    config.write_text(TINY.replace("name: digits", "name: digitz"))
    arguments = ["train", "-c", str(config), "-o", str(tmp_path / "out")]
    assert "name must be one of" in _one_line(runner.invoke(app, arguments))
    config.write_text(good)
    assert runner.invoke(app, arguments).exit_code == 0


def test_missing_device_is_one_line(config, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    arguments = ["train", "-c", str(config), "-o", str(tmp_path / "out")]
    assert "finds no CUDA device" in _one_line(runner.invoke(app, [*arguments, "--device", "cuda"]))
    assert "must be 'auto', 'cpu'" in _one_line(runner.invoke(app, [*arguments, "--device", "x"]))
    assert not (tmp_path / "out").exists()


def test_damaged_checkpoint_is_one_line_and_kept(config, tmp_path):
    output = tmp_path / "out"
    (output / "runs" / "full-0").mkdir(parents=True)
    damaged = output / "runs" / "full-0" / "teacher.checkpoint"
    damaged.write_bytes(b"damaged")
    line = _one_line(runner.invoke(app, ["train", "-c", str(config), "-o", str(output)]))
    assert f"{damaged}: no readable checkpoint" in line
    assert "delete it to train this run anew" in line
    assert damaged.read_bytes() == b"damaged"


def test_interrupt_says_how_to_go_on(config, tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "train_all", stopped)
    result = runner.invoke(app, ["train", "-c", str(config), "-o", str(tmp_path / "out")])
    assert result.exit_code == 130
    assert "the same command goes on" in result.stderr


def test_doctor_prints_a_report():
    result = runner.invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert "versions:" in result.output


def test_a_second_training_in_a_folder_says_so(config, tmp_path):
    output = tmp_path / "out"
    with alone_in(output):
        message = _one_line(runner.invoke(app, ["train", "-c", str(config), "-o", str(output)]))
    assert f"{output}: another process writes to this folder" in message
    assert not list(output.iterdir())


def test_a_second_tuning_in_a_folder_says_so(tmp_path):
    arguments = ["tune", "--data", "digits", "-o", str(tmp_path)]
    with alone_in(tmp_path):
        result = runner.invoke(app, arguments)
    assert result.exit_code == 1
    assert "another process writes to this folder" in result.stderr.splitlines()[-1]


def test_version():
    result = runner.invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"bitgnn {bitgnn.__version__}\n")


def test_built_in_configurations_have_names(tmp_path):
    assert train.load_config(train.find_config("sage_flickr")).dataset.name == "Flickr"
    message = _one_line(runner.invoke(app, ["train", "-c", "gcn_kora", "-o", str(tmp_path)]))
    assert "gcn_kora: neither a file nor a built-in configuration, which are gcn, gcn_" in message
    (tmp_path / "gcn").write_text(TINY)
    assert train.find_config(tmp_path / "gcn") == tmp_path / "gcn"


@pytest.mark.parametrize("text", ["a: &a [*a]", "[" * 1000, "a: 1\na: 2", "a: .nan"])
def test_odd_configurations_are_one_line(text, tmp_path):
    (tmp_path / "odd.yaml").write_text(text)
    message = _one_line(runner.invoke(app, ["train", "-c", str(tmp_path / "odd.yaml")]))
    assert "odd.yaml: is not valid YAML" in message
