"""Checkpoints: round trips, and one clear error for each way they can be damaged."""

import json
import os
import signal
import time

import pytest
import torch
from torch import nn
from torch.nn import functional

from bitgnn import FileError
from bitgnn._checksummed import sealed
from bitgnn.convert import freeze
from bitgnn.inference import load, save
from bitgnn.nn import GCNConv, GraphConv, LayerPrecision, SAGEConv


@pytest.fixture
def saved(make_model, tmp_path):
    model = freeze(make_model("bin"))
    return model, save(model, tmp_path / "model")


def _step(description, number):
    return description["program"]["steps"][number]


def _weights(folder):
    return next(folder.glob("weights-*.safetensors"))


@pytest.mark.parametrize("precision", ["full", "bin"])
@pytest.mark.parametrize("num_layers", [1, 3])
def test_round_trip(make_model, graph, features, tmp_path, precision, num_layers):
    model = freeze(make_model(precision, num_layers))
    copy = load(save(model, tmp_path / "model"))
    assert copy.letters == model.letters
    assert torch.equal(copy(features, graph), model(features, graph))
    assert str(copy) == str(model)
    assert str(copy.report) == str(model.report)
    assert torch.equal(copy(copy.pack_features(features), graph), model(features, graph))


def test_truncated(saved):
    _, folder = saved
    data = _weights(folder).read_bytes()
    _weights(folder).write_bytes(data[:-10])
    with pytest.raises(ValueError, match=rf"safetensors: has {len(data) - 10} bytes"):
        load(folder)


def test_altered(saved):
    _, folder = saved
    data = bytearray(_weights(folder).read_bytes())
    data[-1] ^= 1
    _weights(folder).write_bytes(bytes(data))
    with pytest.raises(ValueError, match=r"safetensors: was altered"):
        load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format=4), "format 4 is unknown"),
        (lambda d: d.update(format=1), "format 1 is unknown"),
        (lambda d: d.update(kind="gat"), "model kind 'gat' is unknown"),
        (lambda d: d.pop("format"), "format None is unknown"),
        (lambda d: d.pop("tensors"), "names no tensor file"),
        (lambda d: d["tensors"].update(file="../x"), "is not the name of"),
        (lambda d: d["tensors"].update(bytes="1"), "names no tensor file"),
        (lambda d: d["program"].update(in_channels=76), r"step 0 \(pack\): inputs must have 75"),
        (lambda d: d["program"].update(entry=2), "must end in a packing step"),
        (lambda d: d["program"].update(entry=9), "entry must lie in"),
        (lambda d: d["program"].update(output=1), "must hold floats"),
        (lambda d: d["program"].update(output=99), "must hold floats"),
        (lambda d: d["program"].update(steps=None), "must be a list"),
        (lambda d: d["program"].pop("output"), "must have the entries"),
        (lambda d: d["program"]["steps"].pop(), "must hold floats"),
        (lambda d: d["program"]["steps"].append(None), "a step must have the entries"),
        (lambda d: _step(d, 1).update(kind="call"), "unknown kind"),
        (lambda d: _step(d, 1).update(kind="os.system"), "unknown kind"),
        (lambda d: _step(d, 1).update(inputs=[7]), "register 7 is read before it is written"),
        (lambda d: _step(d, 1).update(inputs=["x"]), "registers must be numbers"),
        (lambda d: _step(d, 1).update(inputs=[-1]), "registers must be numbers"),
        (lambda d: _step(d, 1).update(inputs=[]), "inputs must be"),
        (lambda d: _step(d, 1).update(outputs=[0]), r"registers \[0\] cannot be written"),
        (lambda d: _step(d, 1).update(outputs=[2, 9]), "cannot be written"),
        (lambda d: _step(d, 1)["attributes"].update(size=74), "inputs must have 74"),
        (lambda d: _step(d, 1)["attributes"].update(size="75"), "attribute 'size' must be"),
        (lambda d: _step(d, 1)["attributes"].update(size=True), "attribute 'size' must be"),
        (lambda d: _step(d, 1)["attributes"].update(out=41), "weight must have 41 rows"),
        (lambda d: _step(d, 1)["attributes"].update(other=1), "attributes must be"),
        (lambda d: _step(d, 1)["tensors"].update(weight="nothing"), r"\['nothing'\] are missing"),
        (lambda d: _step(d, 1)["tensors"].clear(), "tensor weight is missing"),
        (lambda d: _step(d, 2)["tensors"].clear(), "unexpected tensors"),
        (lambda d: _step(d, 2).update(graph=None), "adjacency None does not fit"),
        (lambda d: _step(d, 2).update(graph=1), "adjacency 1 does not fit"),
        (lambda d: _step(d, 2).update(graph=-1), "adjacency -1 does not fit"),
        (lambda d: d["graphs"].clear(), "adjacency 0 does not fit"),
        (lambda d: d["graphs"][0].update(colour="red"), "a graph must have the entries"),
        (lambda d: d["graphs"][0].update(kind="odd"), "unknown option"),
        (lambda d: d["graphs"][0].update(keeps_weights=True), "adjacency 0 does not fit"),
        (lambda d: d["report"].pop("letters"), "a report must have"),
        (lambda d: d.pop("program"), "damaged checkpoint"),
    ],
)
def test_changed_description(saved, change, message):
    _, folder = saved
    file = folder / "model.json"
    description = json.loads(file.read_text())
    change(description)
    file.write_text(json.dumps(description))
    with pytest.raises(FileError, match=r"model\.json: was altered, its checksum does not fit"):
        load(folder)
    file.write_text(json.dumps(sealed(description)))
    with pytest.raises(FileError, match=message) as caught:
        load(folder)
    assert str(file) in str(caught.value)


def test_half_written_description_and_missing_files(saved, tmp_path):
    _, folder = saved
    text = (folder / "model.json").read_text()
    (folder / "model.json").write_text(text[: len(text) // 2])
    with pytest.raises(ValueError, match=r"model\.json: is not valid JSON"):
        load(folder)
    (folder / "model.json").write_text(text)
    _weights(folder).unlink()
    with pytest.raises(ValueError, match="is missing"):
        load(folder)
    with pytest.raises(FileNotFoundError, match="no checkpoint here"):
        load(tmp_path / "nothing")
    with pytest.raises(TypeError, match="must be a frozen model, got dict"):
        save({}, tmp_path / "x")


def test_round_trip_of_every_kind_of_step(tmp_path, graph, features):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            norms = {"hidden_norm": "batch", "output_norm": "batch", "input_norm": "standardize"}
            self.first = SAGEConv(75, 40, precision=LayerPrecision("FBB", "BBB", **norms))
            self.second = GraphConv(40, 40, precision="BFF+FFB")
            self.third = GCNConv(40, 40, precision="FBF+FFF")
            self.norm = nn.LayerNorm(40)
            self.last = nn.Linear(160, 5)

        def forward(self, x, edge_index):
            a = self.first(x, edge_index)
            b = self.second(a, edge_index)
            c = self.norm(self.third(functional.elu(a + b), edge_index))
            d = functional.leaky_relu(c * 2 - 1).tanh() * c.sigmoid()
            return self.last(torch.cat([a, b, c, d], dim=1)).softmax(dim=1)

    torch.manual_seed(0)
    model = Net()
    model(features, graph)
    frozen = freeze(model.eval())
    torch.testing.assert_close(frozen(features, graph), model(features, graph))
    copy = load(save(frozen, tmp_path / "model"))
    assert torch.equal(copy(features, graph), frozen(features, graph))
    assert len({step.kind for step in frozen.program.steps}) > 12


def test_killed_save_leaves_the_old_or_the_new_model(saved, make_model, graph, features):
    """A process that saves without end is killed at odd moments."""
    model, folder = saved
    other = freeze(make_model("full"))
    expected = [model(features, graph), other(features, graph)]
    for delay in (0.0, 0.003, 0.01, 0.02, 0.05):
        child = os.fork()
        if child == 0:
            while True:
                save(other, folder)
                save(model, folder)
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        found = load(folder)(features, graph)
        assert any(torch.equal(found, result) for result in expected)
    save(model, folder)
    assert torch.equal(load(folder)(features, graph), expected[0])
