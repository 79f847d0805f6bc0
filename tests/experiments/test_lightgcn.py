"""Tests of the LightGCN experiment: files of pairs, rankings against plain loops, a whole run."""

import importlib
import json
import math
import sys
from pathlib import Path

import pytest
import torch

EXPERIMENTS = Path(__file__).resolve().parents[2] / "scripts" / "experiments"
sys.path.insert(0, str(EXPERIMENTS))
lightgcn = importlib.import_module("lightgcn")
sys.path.remove(str(EXPERIMENTS))

TRAIN = "0 0 1 2 3\n1 1 2\n2 4 5 6\n3 5 6 7\n\n4 8 0\n5 3\n"
TEST = "0 4\n1 0 3\n2 7\n3 4 8\n4\n5 1 2\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.txt").write_text(TRAIN)
    (tmp_path / "test.txt").write_text(TEST)
    return tmp_path


def test_files(folder):
    data = lightgcn.read(folder)
    assert (data.num_users, data.num_items) == (6, 9)
    assert data.train.T.tolist()[:5] == [[0, 0], [0, 1], [0, 2], [0, 3], [1, 1]]
    assert data.test.size(1) == 8
    graph = data.graph("cpu").to_dense()
    assert torch.equal(graph, graph.T)
    assert float(graph[1, 6 + 1]) == pytest.approx(1 / math.sqrt(2 * 2))
    for text, message in (("0 a\n", ":1: a line must hold numbers"), ("\n", "has no pairs"),
                          ("0 1\n1 -2\n", ":2: numbers must not be negative")):  # fmt: skip
        (folder / "train.txt").write_text(text)
        with pytest.raises(ValueError, match=message):
            lightgcn.read(folder)


@pytest.mark.parametrize("precision", ["bin", "fp32"])
def test_ranking(folder, precision, monkeypatch):
    monkeypatch.setattr(lightgcn, "TOP", 3)
    data = lightgcn.read(folder)
    torch.manual_seed(0)
    model = lightgcn.make(data, 64, 2, precision)
    graph = data.graph("cpu")
    table = model.get_embedding(graph).detach()
    # Sums of signs are exact; floats rank by cosines.
    table = table.sign() if precision == "bin" else table / table.norm(dim=1, keepdim=True)
    recalls, gains = [], []
    for user in range(6):
        wanted = data.test[1][data.test[0] == user].tolist()
        if not wanted:
            continue
        seen = set(data.train[1][data.train[0] == user].tolist())
        scores = (table[6:] @ table[user]).tolist()
        order = sorted(set(range(9)) - seen, key=lambda item: (-scores[item], item))[:3]
        hits = [item in wanted for item in order]
        recalls.append(sum(hits) / len(wanted))
        best = sum(1 / math.log2(place + 2) for place in range(min(3, len(wanted))))
        gains.append(sum(hit / math.log2(i + 2) for i, hit in enumerate(hits)) / best)
    recall, ndcg = lightgcn.ranking(model, graph, data)
    assert recall == pytest.approx(sum(recalls) / len(recalls))
    assert ndcg == pytest.approx(sum(gains) / len(gains))


def test_products_and_gradients_are_pygs(folder):
    data = lightgcn.read(folder)
    graph, model = data.graph("cpu"), lightgcn.make(data, 8, 2, "fp32")
    theirs = lightgcn.LightGCN(15, 8, 2, precision="fp32")
    theirs.load_state_dict(model.state_dict())
    pairs = data.train + torch.tensor([[0], [6]])
    edges = torch.cat([pairs, pairs.flip(0)], 1)
    found, expected = model.get_embedding(graph), theirs.get_embedding(edges)
    torch.testing.assert_close(found, expected)
    (found.sin().sum() + expected.sin().sum()).backward()
    torch.testing.assert_close(model.embedding.weight.grad, theirs.embedding.weight.grad)


def test_labels(folder):
    data = lightgcn.read(folder)
    labels = lightgcn.TrainedItems(data, "cpu")(torch.tensor([1, 0, 1]))
    expected = torch.zeros(3, 9)
    expected[0, 1:3] = expected[2, 1:3] = 1 / 2
    expected[1, :4] = 1 / 4
    assert torch.equal(labels, expected)
    teacher = lightgcn.make(data, 8, 1, "fp32")
    graph = data.graph("cpu")
    shares = lightgcn.TeachersItems(teacher, graph, 6, 0.5)(torch.tensor([4]))
    table = teacher.get_embedding(graph).detach()
    cosines = torch.cosine_similarity(table[6:], table[4:5])
    torch.testing.assert_close(shares[0].log(), (cosines / 0.5).log_softmax(0))


@pytest.mark.parametrize("precision", ["bin", "fp32"])
def test_run(folder, precision):
    output = folder / "out.json"
    options = ["--precision", precision, "--dim", "32", "--teacher-dim", "8", "--users", "4"]
    assert lightgcn.main([str(folder), *options, "--steps", "6", "--every", "4", "--device", "cpu",
                          "--output", str(output)]) == 0  # fmt: skip
    record = json.loads(output.read_text())
    assert record["tests"].keys() == {"fp32", precision}
    for name, tests in record["tests"].items():
        assert [test["step"] for test in tests] == [4, 6]
        best = record["best"][name]
        assert best["recall"] == max(test["recall"] for test in tests)
    assert record["data"] == {"users": 6, "items": 9, "pairs": 15}
    assert record["options"]["precision"] == precision
    assert str(folder) not in output.read_text()
