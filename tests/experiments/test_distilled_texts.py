"""The script that distills an encoder of transformers on sentences."""

import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch

EXPERIMENTS = Path(__file__).resolve().parents[2] / "scripts" / "experiments"


def told(count: int) -> list[tuple[str, int]]:
    """Sentences whose first word tells their class."""
    return [(f"{('bad', 'good')[i % 2]} film number {i}", i % 2) for i in range(count)]


@pytest.fixture
def script(monkeypatch):
    pytest.importorskip("tokenizers")
    pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    import distilled_texts

    data = told(90), told(20), told(30)
    monkeypatch.setattr(distilled_texts, "load_sentences", lambda *_: data)
    sizes = {
        "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 32, "max_position_embeddings": 16,
    }  # fmt: skip
    for name, value in (("SIZES", sizes), ("VOCABULARY", 60), ("BATCH", 16)):
        monkeypatch.setattr(distilled_texts, name, value)
    yield distilled_texts
    sys.modules.pop("distilled_texts")


def test_students_of_several_forms_learn_from_one_encoder(script, tmp_path):
    case = {"task": "told", "seed": 0, "epochs": 4, "limit": 80}
    case = {**case, "forms": ["bwta:learning_rate=0.01", "signs"]}
    found = script.run((case, None, "cpu"), tmp_path)
    assert list(found["students"]) == case["forms"]
    for student in found["students"].values():
        assert student["gap"] == pytest.approx(100 * (student["teacher"] - student["test"]))
        assert student["differing"] == 0
        assert student["sentences"] == 30
        assert len(student["history"]) == 4
    rows = script.mean_scores([found, found])
    assert [(row["task"], row["form"], row["runs"]) for row in rows] == [
        ("told", form, 2) for form in case["forms"]
    ]
    assert rows[0]["gap_std"] == 0


def test_an_epoch_has_every_sentence_once(script):
    _, (train, *_) = script.tokens(None, None)
    for is_training in (True, False):
        sentences = script.Sentences(train, is_training)
        batches = list(sentences)
        assert len(batches) == len(sentences)
        rows = torch.cat(
            [torch.nn.functional.pad(b["input_ids"], (0, 16))[:, :16] for b in batches]
        )
        assert sorted(rows.tolist()) == sorted(train.ids[:, :16].tolist())
        lengths = torch.cat([batch["attention_mask"].sum(1) for batch in batches])
        assert torch.equal(lengths.sort().values, train.lengths.sort().values)


def test_each_seed_has_a_case(script):
    options = {"seeds": 2, "epochs": 3, "limit": None, "forms": ["bwta"]}
    found = list(script.cases(Namespace(**options)))
    assert [case["seed"] for case in found] == [0, 1]
    assert {(case["task"], case["epochs"]) for case in found} == {("sst2", 3)}
