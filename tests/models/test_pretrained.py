"""Packed models of the package: each loads, is as large and as accurate as its card says."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import bitgnn
from bitgnn.data import DataError
from bitgnn.data.files import data_root
from bitgnn.inference import Frozen
from bitgnn.models import (
    from_pretrained,
    pretrained,
    pretrained_card,
    pretrained_folder,
    pretrained_names,
)

NAMES = pretrained_names()
ROOT = Path(__file__).resolve().parents[2]
LEAST, MOST, ALL = 5_000, 200_000, 2_000_000
ROUNDING = 2e-3
"""Scores of a GPU and a CPU differ by a row at the edge of two classes."""
TEXTS = {"bert-sst2"}
LONG = {"gcn-photo", "sage-photo", "sage-tolokers", "vgg-cifar", "resnet14-cifar", "mlp-mnist"}


@pytest.fixture
def tasks(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "experiments"))
    pytest.importorskip("PIL", reason="pillow is not installed")
    import zoo_tasks

    yield zoo_tasks.TASKS
    sys.modules.pop("zoo_tasks")


def test_there_are_models_of_several_kinds():
    kinds = {pretrained_card(name)["kind"] for name in NAMES}
    assert len(NAMES) >= 12
    assert {"classes of nodes", "links", "classes of images"} <= kinds


def test_they_are_small():
    sizes = {name: sum(file.stat().st_size for file in folder(name)) for name in NAMES}
    assert all(LEAST <= size <= MOST for size in sizes.values()), sizes
    assert sum(sizes.values()) < ALL


def folder(name):
    return list(pretrained_folder(name).iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_a_card_tells_all(name):
    card = pretrained_card(name)
    held = sum(file.stat().st_size for file in folder(name) if file.name != "card.json")
    assert card["name"] == name
    assert card["bytes"]["bits"] == held < card["bytes"]["fp32"]
    assert len(card["scores"]["fp32"]) == len(card["scores"]["bits"]) == len(card["seeds"])
    assert card["score"] == card["scores"]["bits"][card["seeds"].index(card["seed"])]
    assert all(card["licence"].values())
    assert name in card["command"]
    assert card["environment"]["commit"]


@pytest.mark.parametrize("name", sorted(set(NAMES) - TEXTS))
def test_each_loads_and_packs_what_it_holds(name):
    model = pretrained(name)
    assert isinstance(model, Frozen)
    packed = [t for t in model.state_dict().values() if t.dtype == torch.int32]
    assert sum(t.numel() for t in packed) > 0


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in LONG | TEXTS else n for n in NAMES],
)
def test_accuracy_where_the_data_are(name, tasks):
    if name in TEXTS:
        pytest.importorskip("transformers", reason="transformers is not installed")
    root = data_root(None)
    root = root if root.exists() else ROOT.parent / "shared" / "datasets"
    try:
        found = tasks[name].score(pretrained(name), str(root), "cpu")
    except DataError as error:
        pytest.skip(f"data of {name} are not at hand: {error}")
    assert found == pytest.approx(pretrained_card(name)["score"], abs=ROUNDING)


def test_from_a_folder_and_by_name():
    by_name, by_folder = (
        from_pretrained("gcn-digits"),
        from_pretrained(pretrained_folder("gcn-digits")),
    )
    data = bitgnn.data.load_digits_graph()
    expected = pretrained("gcn-digits")(data.x, data.edge_index)
    for model in (by_name, by_folder):
        assert torch.equal(model(data.x, data.edge_index), expected)


def test_from_the_hub(tmp_path, monkeypatch):
    asked, hub = [], ModuleType("huggingface_hub")
    real = pretrained_folder("gcn-digits")
    for file in real.iterdir():  # as its cache has them
        (tmp_path / file.name).symlink_to(file)

    def snapshot_download(name, *, revision, allow_patterns):
        asked.append((name, revision, allow_patterns))
        return str(tmp_path)

    hub.snapshot_download = snapshot_download
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    model = from_pretrained("someone/model", revision="main")
    assert asked == [("someone/model", "main", ["*.json", "*.safetensors"])]
    assert str(model.program) == str(pretrained("gcn-digits").program)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match="pip install huggingface_hub"):
        from_pretrained("someone/model")


def test_wrong_names(tmp_path):
    with pytest.raises(ValueError, match=r"name must be one of \['.*gcn-cora.*'\], got 'gcn'"):
        pretrained("gcn")
    with pytest.raises(FileNotFoundError, match="must be a folder, owner/name on the Hub or one"):
        from_pretrained("gcn")
    with pytest.raises(ValueError, match="name must be one of"):
        pretrained_card("gcn")
    with pytest.raises(bitgnn.FileError, match=r"card\.json: cannot be read"):
        pretrained_card(str(tmp_path))
    (tmp_path / "card.json").write_text(json.dumps([1]))
    with pytest.raises(bitgnn.FileError, match="must be an object"):
        pretrained_card(str(tmp_path))
