"""Commands that take a saved model: their files, numbers and JSON are those of the library."""

import csv
import json

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

import bitgnn
from bitgnn.data import load_digits_graph
from bitgnn.models import pretrained, pretrained_card, pretrained_names


@pytest.fixture(scope="module")
def data():
    return load_digits_graph()


@pytest.fixture(scope="module")
def frozen(data):
    torch.manual_seed(0)
    model = bitgnn.binarize(pyg.GCN(61, 16, 2, 10))
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(30):
        optimizer.zero_grad()
        scores = model(data.x, data.edge_index)[data.train_mask]
        nn.functional.cross_entropy(scores, data.y[data.train_mask]).backward()
        optimizer.step()
    return bitgnn.freeze(model.eval())


@pytest.fixture(scope="module")
def saved(frozen, tmp_path_factory):
    return bitgnn.save(frozen, tmp_path_factory.mktemp("saved") / "model")


DIGITS = ("--data", "digits", "--threads", "1")


def test_predict(run, saved, frozen, data, tmp_path):
    expected = frozen(data.x, data.edge_index)
    out = tmp_path / "scores.npy"
    assert run("predict", saved, *DIGITS, "-o", out).stdout == f"1797 nodes written to {out}\n"
    assert np.array_equal(np.load(out, allow_pickle=False), expected.numpy())
    table = tmp_path / "scores.csv"
    run("predict", saved, *DIGITS, "-o", table)
    rows = list(csv.DictReader(table.open()))
    assert [int(row["node"]) for row in rows] == list(range(1797))
    assert [int(row["class"]) for row in rows] == expected.argmax(1).tolist()
    assert [float(row["score_9"]) for row in rows] == expected[:, 9].tolist()


def test_models_that_hand_out_classes_or_take_packed_features(run, frozen, data, tmp_path):
    torch.manual_seed(0)
    model = bitgnn.binarize(pyg.GCN(61, 16, 2, 10), example=data).eval()
    classes = bitgnn.freeze(model, output="classes", features="packed", check=False)
    path = bitgnn.save(classes, tmp_path / "classes")
    run("predict", path, *DIGITS, "-o", tmp_path / "classes.csv")
    rows = list(csv.DictReader((tmp_path / "classes.csv").open()))
    expected = classes(classes.pack_features(data.x), data.edge_index)
    assert rows[0].keys() == {"node", "class"}
    assert [int(row["class"]) for row in rows] == expected.tolist()
    found = json.loads(run("evaluate", path, *DIGITS, "--json").stdout)
    right = (expected == data.y)[data.test_mask].double().mean()
    assert found["test"] == pytest.approx(float(right))


def test_evaluate(run, saved, frozen, data):
    right = (frozen(data.x, data.edge_index).argmax(1) == data.y).double()
    found = json.loads(run("evaluate", saved, *DIGITS, "--json").stdout)
    assert (found["model"], found["data"], found["metric"]) == (str(saved), "digits", "accuracy")
    lines = run("evaluate", saved, *DIGITS).stdout.splitlines()
    assert lines[0] == "accuracy"
    for name, line in zip(("train", "val", "test"), lines[1:], strict=True):
        mask = data[f"{name}_mask"]
        assert found[name] == pytest.approx(float(right[mask].mean()))
        assert line.split() == [name, f"{found[name]:.4f}", str(int(mask.sum())), "nodes"]


def test_benchmark_and_summary(run, saved, frozen):
    found = json.loads(run("benchmark", saved, *DIGITS, "--json").stdout)
    ways = {f"{form}, {way}" for form in ("floats", "packed") for way in ("call", "captured")}
    assert found["seconds"].keys() == found["repeats"].keys() == ways
    assert all(len(repeats) == 15 and min(repeats) > 0 for repeats in found["repeats"].values())
    assert found["bytes"]["weights"] >= frozen.nbytes
    assert "floats, captured" in run("benchmark", saved, *DIGITS).stdout
    assert json.loads(run("summary", saved, "--json").stdout) == json.loads(
        json.dumps(bitgnn.summary(frozen).to_dict())
    )
    assert run("summary", saved).stdout.split() == str(bitgnn.summary(frozen)).split()


def test_what_does_not_fit_is_one_line(refused, saved, frozen, tmp_path):
    assert "--output must end in .npy or .csv" in refused(
        "predict", saved, "--data", "nothing.npz", "-o", tmp_path / "a.txt"
    )
    assert "missing" in refused("evaluate", tmp_path / "missing", "--data", "nothing.npz")
    assert (
        "device 'cuda'"
        in refused("evaluate", tmp_path / "missing", "--data", "digits", "--device", "cuda")
        or torch.cuda.is_available()
    )
    narrow = bitgnn.freeze(bitgnn.binarize(pyg.GCN(8, 16, 2, 10)).eval(), check=False)
    path = bitgnn.save(narrow, tmp_path / "narrow")
    assert "x must have 8 features, got 61" in refused("evaluate", path, "--data", "digits")
    images = bitgnn.freeze(bitgnn.models.MLP(widths=(64,)).eval())
    path = bitgnn.save(images, tmp_path / "images")
    line = refused("benchmark", path, "--data", "nothing.npz")
    assert "must hold a model of graphs, got one of kind 'images'" in line


def test_the_doctor_as_json(run, monkeypatch):
    from bitgnn import doctor

    found = json.loads(run("doctor", "--json").stdout)
    assert found["missing"] == []
    assert doctor.report(found) == run("doctor").stdout.rstrip("\n")
    monkeypatch.setattr(doctor, "missing", lambda: ["a library: install it"])
    assert "  - a library: install it" in run("doctor", status=1).stdout
    assert json.loads(run("doctor", "--json", status=1).stdout)["missing"]
    monkeypatch.undo()
    monkeypatch.setattr(doctor, "_tried", lambda device: "PROBLEM: the process died")
    run("doctor", status=1)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 15 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 15 bytes"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 15 GiB"),
    ],
)
def test_too_little_memory_is_one_line(refused, saved, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr("bitgnn.models.from_pretrained", fail)
    assert "error: out of memory: " in refused("evaluate", saved, *DIGITS)


def test_models_of_the_package_go_by_name(run, tmp_path, data):
    cards = json.loads(run("zoo", "--json").stdout)
    assert [card["name"] for card in cards] == pretrained_names()
    lines = run("zoo").stdout.splitlines()
    assert [line.split()[0] for line in lines] == pretrained_names()
    found = json.loads(run("evaluate", "gcn-digits", *DIGITS, "--json").stdout)
    assert found["test"] == pytest.approx(pretrained_card("gcn-digits")["score"], abs=2e-3)
    out = tmp_path / "scores.npy"
    assert run("predict", "gcn-digits", *DIGITS, "-q", "-o", out).output == ""
    expected = pretrained("gcn-digits")(data.x, data.edge_index)
    assert np.array_equal(np.load(out), expected.numpy())
    assert "convs.0" in run("summary", "gcn-digits").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "nosuch"], "model must be one of"),
        (["--precision", "FXF"], "precision"),
        (["--state", "none.safetensors"], "none.safetensors: cannot be read"),
        (["--model", "package.nosuch:Net"], "package"),
    ],
)
def test_arguments_are_checked_before_data_are_read(refused, tmp_path, arguments, message):
    line = refused(
        "distill", "--data", "Reddit", "--data-root", tmp_path, *arguments, "-o", tmp_path / "out"
    )
    assert message in line
    assert "Reddit" not in line
    assert list(tmp_path.iterdir()) == []
