"""The command line: results on success, one line and a status on failure."""

import json

import pytest
import torch
from torch_geometric.datasets import Planetoid

import bitgnn
from bitgnn._files import alone_in
from bitgnn.data import load_digits_graph
from bitgnn.distillation import demo
from bitgnn.inference import load


@pytest.fixture
def quick(monkeypatch):
    """A demo of two epochs."""
    real = demo.distilled
    monkeypatch.setattr(demo, "HIDDEN", 8)
    monkeypatch.setattr(demo, "distilled", lambda *a, **named: real(*a, epochs=2, **named))


def test_help_version_and_doctor(run):
    result = run()
    assert result.output == run("--help").output
    assert "Print the version.\n" in result.output
    assert run("--version").output == f"bitgnn {bitgnn.__version__}\n"
    assert "3 nothing keeps them" in " ".join(run("tune", "--help").output.split())
    assert "versions:" in run("doctor").output


@pytest.mark.usefixtures("quick")
def test_demo_compares_three_forms_and_goes_on(run, tmp_path):
    arguments = ["demo", "-o", tmp_path, "--threads", "1"]
    result = run(*arguments, "--seeds", "2")
    assert "digits bin, seed 2 of 2: " in result.stdout
    assert "agree on every node of every seed" in result.stdout
    forms = json.loads((tmp_path / "results.json").read_text())["forms"]
    assert list(forms) == ["fp32", "full", "bin"]
    assert forms["bin"]["weight_bytes"] < forms["fp32"]["weight_bytes"]
    assert (tmp_path / "results.png").read_bytes().startswith(b"\x89PNG")
    data = load_digits_graph()
    frozen = load(tmp_path / "model-bin")
    right = frozen(data.x, data.edge_index).argmax(1) == data.y
    share = 100 * float(right[data.test_mask].double().mean())
    assert any(share == pytest.approx(score) for score in forms["bin"]["scores"])
    run(*arguments, "--seeds", "2")
    assert (
        json.loads((tmp_path / "results.json").read_text())["forms"]["bin"]["scores"]
        == (forms["bin"]["scores"])
    )


@pytest.mark.usefixtures("quick")
def test_a_frozen_model_that_differs_ends_the_demo(tmp_path, monkeypatch):
    real = demo.distilled

    def wrong(*arguments, **named):
        result = real(*arguments, **named)
        frozen = result.frozen
        frozen.get_buffer(frozen.program.calls[-2].tensors["w"]).bitwise_not_()
        return result

    monkeypatch.setattr(demo, "distilled", wrong)
    with pytest.raises(RuntimeError, match=r"form full, seed 0: the frozen .* of 1797 nodes"):
        demo.train_forms(load_digits_graph(), tmp_path, 1, demo.Console(quiet=True))


def test_files_that_cannot_be_used_are_one_line_and_kept(refused, tmp_path, monkeypatch):
    monkeypatch.setattr(Planetoid, "url", "http://127.0.0.1:9")
    (tmp_path / "file").write_text("mine")
    assert "cannot be written" in refused("demo", "-o", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    damaged = tmp_path / "out" / "runs" / "full-0" / "teacher.checkpoint"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"damaged")
    line = refused("demo", "-o", tmp_path / "out")
    assert f"{damaged}: no readable checkpoint" in line
    assert "delete it to train this run anew" in line
    assert damaged.read_bytes() == b"damaged"
    line = refused("distill", "--data", "Cora", "--data-root", tmp_path / "none")
    assert "Put ind.cora.x" in line


def test_a_device_that_is_not_there_touches_nothing(refused, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    arguments = ["distill", "--data", "digits", "-o", tmp_path / "out", "--device", "cuda"]
    assert "finds no CUDA device" in refused(*arguments)
    assert not (tmp_path / "out").exists()


def test_interrupt_says_how_to_go_on(run, tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "distilled", stopped)
    result = run("demo", "-o", tmp_path / "out", status=130)
    assert "the same command goes on" in result.stderr


def test_a_second_job_in_a_folder_says_so(run, refused, tmp_path):
    with alone_in(tmp_path / "out"):
        message = refused("demo", "-o", tmp_path / "out")
        assert f"{tmp_path / 'out'}: another process writes to this folder" in message
        result = run("tune", "--data", "digits", "-o", tmp_path / "out", status=1)
        assert "another process writes to this folder" in result.stderr.splitlines()[-1]
    assert not list((tmp_path / "out").iterdir())
