"""Checkpoints: round trips, and one clear error for each way they can be damaged."""

import json

import pytest
import torch

from bitgnn.convert import freeze
from bitgnn.inference import load, save


@pytest.fixture
def saved(make_model, tmp_path):
    model = freeze(make_model("bin"))
    return model, save(model, tmp_path / "model")


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


def test_files_are_json_and_safetensors_only(saved):
    model, folder = saved
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["model.json", _weights(folder).name]
    description = json.loads((folder / "model.json").read_text())
    assert description["format"] == 1
    assert description["letters"] == list(model.letters)


def test_saving_again_replaces_the_model(saved, make_model, graph, features):
    _, folder = saved
    other = freeze(make_model("full"))
    save(other, folder)
    assert len(list(folder.iterdir())) == 2
    assert torch.equal(load(folder)(features, graph), other(features, graph))


def test_failed_save_leaves_the_old_model(saved, make_model, graph, features, monkeypatch):
    model, folder = saved
    import bitgnn.inference.checkpoint as checkpoint

    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(checkpoint.json, "dumps", fail)
    with pytest.raises(OSError, match="disk full"):
        save(freeze(make_model("full")), folder)
    monkeypatch.undo()
    assert torch.equal(load(folder)(features, graph), model(features, graph))


def test_truncated(saved):
    _, folder = saved
    data = _weights(folder).read_bytes()
    _weights(folder).write_bytes(data[:-10])
    with pytest.raises(ValueError, match=rf"damaged checkpoint, .* has {len(data) - 10} bytes"):
        load(folder)


def test_altered(saved):
    _, folder = saved
    data = bytearray(_weights(folder).read_bytes())
    data[-1] ^= 1
    _weights(folder).write_bytes(bytes(data))
    with pytest.raises(ValueError, match=r"damaged checkpoint, .* was altered"):
        load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format=2), "checkpoint format 2 is unknown"),
        (lambda d: d.update(kind="gat"), "model kind 'gat' is unknown"),
        (lambda d: d.pop("format"), "is not a bitgnn checkpoint"),
        (lambda d: d.pop("tensors"), "names no tensor file"),
        (lambda d: d["tensors"].update(file="../x"), "is no file name"),
        (lambda d: d["sizes"].__setitem__(0, 76), "does not fit|must have shape|padding"),
        (lambda d: d["sizes"].__setitem__(1, 41), "does not fit|must have shape"),
        (lambda d: d["letters"].pop(), "damaged checkpoint"),
        (lambda d: d["graph"].update(colour="red"), "damaged checkpoint"),
    ],
)
def test_changed_description(saved, change, message):
    _, folder = saved
    file = folder / "model.json"
    description = json.loads(file.read_text())
    change(description)
    file.write_text(json.dumps(description))
    with pytest.raises(ValueError, match=message):
        load(folder)


def test_half_written_description_and_missing_files(saved, tmp_path):
    _, folder = saved
    text = (folder / "model.json").read_text()
    (folder / "model.json").write_text(text[: len(text) // 2])
    with pytest.raises(ValueError, match="is not whole JSON"):
        load(folder)
    (folder / "model.json").write_text(text)
    _weights(folder).unlink()
    with pytest.raises(ValueError, match="is missing"):
        load(folder)
    with pytest.raises(FileNotFoundError, match="no checkpoint here"):
        load(tmp_path / "nothing")
    with pytest.raises(TypeError, match="must be a frozen model, got dict"):
        save({}, tmp_path / "x")
