"""The command line: results on success, one line and a status on failure."""

import numpy as np
import pytest
import torch

import bitgnn
from bitgnn import train
from bitgnn._files import alone_in
from bitgnn.data import pyg_datasets
from bitgnn.inference import load
from bitgnn.train import command

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


def test_train_writes_everything(run, refused, config, tmp_path):
    output = tmp_path / "out"
    arguments = ["train", "-c", config, "-o", output, "--threads", "1"]
    config.write_text(TINY.replace("digits", "digitz"))
    assert "name must be one of" in refused(*arguments)
    config.write_text(TINY)  # a folder without work in it takes another job
    run(*arguments)
    names = {path.name for path in output.iterdir()}
    assert {"results.json", "results.csv", "results.png", "model-full", "model-bin"} <= names
    assert load(output / "model-bin").in_channels == 61
    run(*arguments)
    assert "digits bin, seed 2 of 2: " in run(*arguments, "--seeds", "2").stdout
    config.write_text(TINY.replace("hidden: 8", "hidden: 16"))
    assert "hidden: 8 there, 16 here" in refused(*arguments)


def test_train_on_a_graph_of_ones_own(run, refused, config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    y = np.arange(30) % 2
    np.savez("mine.npz", x=np.stack([y, 1 - y], axis=1), y=y, edges=np.zeros((0, 2), np.int64))
    result = run("train", "-c", config, "--data", "mine.npz", "--threads", "1")
    assert "mine.npz: 30 nodes, 0 edges, 2 features" in result.stdout
    assert "mine.npz: has no masks; 60, 20 and 20 per cent" in result.stderr
    assert load(tmp_path / "bitgnn-train" / "tiny_mine" / "model-bin").in_channels == 2
    config.write_text(TINY.replace("digits", "none.npz"))
    assert "none.npz: no such file" in refused("train", "-c", config)


def test_help_version_and_doctor(run):
    result = run()
    assert result.output == run("--help").output
    assert "--version  Print the version.\n" in result.output
    assert run("--version").output == f"bitgnn {bitgnn.__version__}\n"
    assert "3 no plan keeps them" in " ".join(run("tune", "--help").output.split())
    assert "versions:" in run("doctor").output


def test_demo_uses_its_own_experiment(run, tmp_path, monkeypatch, config):
    small = train.load_config(config)
    asked = []
    monkeypatch.setattr(train, "demo_config", lambda seeds: asked.append(seeds) or small)
    run("demo", "-o", tmp_path / "demo", "--seeds", "2")
    assert asked == [2]
    assert (tmp_path / "demo" / "results.png").is_file()


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        (TINY.replace("seeds: 1", "sedes: 1"), [], "unknown key 'sedes'"),
        (TINY, ["--device", "cuda"], "finds no CUDA device"),
        (TINY, ["--device", "x"], "must be 'auto', 'cpu'"),
        (TINY, ["-c", "gcn_kora"], "gcn_kora: neither a file nor a built-in configuration, which"),
        *(
            (text, [], "tiny.yaml: is not valid YAML")
            for text in ("a: &a [*a]", "[" * 1000, "a: 1\na: 2", "a: .nan")
        ),
    ],
)
def test_mistakes_are_one_line_and_touch_nothing(
    refused, config, tmp_path, monkeypatch, text, more, said
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config.write_text(text)
    assert said in refused("train", "-c", config, "-o", tmp_path / "out", *more)
    assert not (tmp_path / "out").exists()


def test_files_that_cannot_be_used_are_one_line_and_kept(refused, config, tmp_path, monkeypatch):
    def offline(*_, **__):
        raise ConnectionError("offline")

    monkeypatch.setattr(pyg_datasets, "download_file", offline)
    arguments = ["train", "-c", config, "-o"]
    (tmp_path / "file").write_text("mine")
    assert "cannot be written" in refused(*arguments, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    damaged = tmp_path / "out" / "runs" / "full-0" / "teacher.checkpoint"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"damaged")
    line = refused(*arguments, tmp_path / "out")
    assert f"{damaged}: no readable checkpoint" in line
    assert "delete it to train this run anew" in line
    assert damaged.read_bytes() == b"damaged"
    config.write_text(TINY.replace("name: digits", "name: Cora"))
    line = refused(*arguments, tmp_path / "other", "--data-root", tmp_path / "none")
    assert "Put ind.cora.x" in line


def test_interrupt_says_how_to_go_on(run, config, tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "train_all", stopped)
    result = run("train", "-c", config, "-o", tmp_path / "out", status=130)
    assert "the same command goes on" in result.stderr


def test_a_second_job_in_a_folder_says_so(run, refused, config, tmp_path):
    with alone_in(tmp_path / "out"):
        message = refused("train", "-c", config, "-o", tmp_path / "out")
        assert f"{tmp_path / 'out'}: another process writes to this folder" in message
        result = run("tune", "--data", "digits", "-o", tmp_path / "out", status=1)
        assert "another process writes to this folder" in result.stderr.splitlines()[-1]
    assert not list((tmp_path / "out").iterdir())


def test_built_in_configurations_have_names(tmp_path):
    assert train.load_config(train.find_config("sage_flickr")).dataset.name == "Flickr"
    (tmp_path / "gcn").write_text(TINY)
    assert train.find_config(tmp_path / "gcn") == tmp_path / "gcn"
