"""Plans as documents: what they hold, how they are read, and which models they are for."""

import json

import pytest
import torch_geometric.nn
import yaml
from torch import nn

import bitgnn
from bitgnn import GraphConfig, Plan
from bitgnn.convert import ModelShape
from bitgnn.models import GCN, GraphSAGE
from bitgnn.nn import Linear

LETTERS = {"convs.0": "FBB+BBB", "convs.1": "BBF+FBF"}
WRONG = {
    "type": "GCN",
    "layers": [{"name": "a", "type": "b", "in_channels": "1", "out_channels": 2}],
}


@pytest.fixture
def model():
    return GCN(75, 16, 5, precision="bin")


@pytest.fixture
def plan(model):
    notes = {"accuracy": 0.8, "reasons": ["fast"]}
    return Plan(LETTERS, features="packed", model=ModelShape.of(model), notes=notes)


@pytest.mark.parametrize("name", ["plan.yaml", "plan.yml", "plan.json"])
def test_round_trip(plan, name, tmp_path):
    file = plan.save(tmp_path / name)
    assert Plan.load(file) == plan
    assert Plan.load(file).notes == plan.notes
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


def test_a_short_document_is_enough(tmp_path):
    (tmp_path / "plan.yaml").write_text("letters: {conv1: FBB+BBB, lin: FBF}\n")
    plan = Plan.load(tmp_path / "plan.yaml")
    assert plan == Plan({"conv1": "FBB+BBB", "lin": "FBF"})
    assert plan.model is None


def test_equal_plans_share_a_hash_and_plans_read_as_one_line(plan):
    same = Plan.from_dict({**plan.to_dict(), "notes": {"accuracy": 0.1}})
    assert same == plan
    assert len({plan, same, Plan(LETTERS), Plan(dict(reversed(LETTERS.items())))}) == 2
    ordered = Plan(plan.letters, {"convs.1": "aggregate_first"})
    line = "convs.0 FBB+BBB, convs.1 BBF+FBF, convs.1 aggregate first, floats in"
    assert ordered.describe() == line


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"letters": {"a": "FBX+XBB"}}, r"letters of 'a': .* got 'FBX\+XBB'"),
        ({"letters": {"a": "FBF+BBB"}}, r"letters of 'a': .*must be the activation of BSpMM"),
        ({"letters": {"a": "full"}}, "letters of 'a' must be spelled out, got 'full'"),
        ({"letters": {"a": 3}}, "letters must map names to strings, got 'a': 3"),
        ({"letters": ["FBB"]}, "letters must be a mapping, got list"),
        ({"letters": LETTERS, "order": {"a": "first"}}, r"order of 'a' must be one of"),
        ({"letters": LETTERS, "features": "bits"}, "features must be one of .* got 'bits'"),
        # Entries that plans had once.
        ({"letters": LETTERS, "layout": "csr"}, r"unknown entries \['layout'\]"),
        ({"letters": LETTERS, "executor": "eager"}, r"unknown entries \['executor'\]"),
        ({"features": "floats"}, r"lacks the entries \['letters'\]"),
        ({"letters": LETTERS, "format": 2}, "format 2 is unknown"),
        ({"letters": LETTERS, "model": {"type": "GCN"}}, r"model lacks the entries \['layers'\]"),
        ({"letters": LETTERS, "model": {"type": "GCN", "layers": {}}}, "a list of layers"),
        ({"letters": LETTERS, "model": {"type": "GCN", "layers": [3]}}, "must be a mapping"),
        ({"letters": LETTERS, "model": WRONG}, "a layer of model is wrong"),
        ([1], "plan must be a mapping, got list"),
    ],
)
def test_wrong_documents(entries, message, tmp_path):
    file = tmp_path / "plan.yaml"
    file.write_text(yaml.safe_dump(entries))
    with pytest.raises(ValueError, match=message) as caught:
        Plan.load(file)
    assert str(caught.value).startswith(str(file))


def test_unreadable_files(plan, tmp_path):
    for name, text in (("a.yaml", "letters: ["), ("a.json", "{"), ("b.yaml", "!!python/object:x")):
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=f"{name}: is not valid"):
            Plan.load(tmp_path / name)
    (tmp_path / "c.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="is not valid JSON"):
        Plan.load(tmp_path / "c.json")
    with pytest.raises(FileNotFoundError):
        Plan.load(tmp_path / "none.yaml")
    for use in (plan.save, Plan.load):
        with pytest.raises(ValueError, match=r"suffix must be one of .* got '\.txt'"):
            use(tmp_path / "plan.txt")


def test_a_failed_write_leaves_the_old_plan(plan, tmp_path, monkeypatch):
    file = Plan(LETTERS).save(tmp_path / "plan.yaml")

    def full(handle):
        raise OSError("disk full")

    monkeypatch.setattr("bitgnn._files.os.fsync", full)
    with pytest.raises(OSError, match="disk full"):
        plan.save(file)
    assert Plan.load(file) == Plan(LETTERS)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.yaml"]


def test_plans_for_another_model(plan, model):
    plan.check_model(model)
    wrapped = nn.ModuleDict({"lin": Linear(3, 2, precision="FBF")})
    for one, other, message in (
        (plan, GCN(75, 32, 5), "plan is for GCN of .*the model is"),
        (plan, GCN(75, 16, 5, num_layers=3), "plan is for GCN of .*the model is"),
        (plan, GraphSAGE(75, 16, 5), "plan is for GCN of .*the model is"),
        (Plan({"conv1": "FBB+BBB"}), model, r"layers \['conv1'\]; the model is GCN of"),
        (Plan({}, {"conv1": "aggregate_first"}), model, r"plan is for layers \['conv1'\]"),
        (Plan({"convs.0": "FBB"}), model, "letters of 'convs.0', a GCNConv, must be six"),
        (Plan({"lin": "FBF+FBF"}), wrapped, "letters of 'lin', a Linear, must be three"),
    ):
        with pytest.raises(ValueError, match=message):
            one.check_model(other)


def test_shapes_do_not_tell_layers_of_pyg_from_binary_ones():
    plain = torch_geometric.nn.GCN(75, 16, 2, 5)
    binary = bitgnn.binarize(plain, GraphConfig("full", activation="drop"))
    assert ModelShape.of(plain) == ModelShape.of(binary)
    assert str(ModelShape.of(plain)) == "GCN of convs.0 GCNConv(75, 16), convs.1 GCNConv(16, 5)"
