"""The study of distilled graph models: its cases, its forms, and one case from data to summary."""

import argparse
import importlib
import sys
from pathlib import Path

import torch

from bitgnn.distillation.recipe import DistillRecipe

EXPERIMENTS = Path(__file__).resolve().parents[2] / "scripts" / "experiments"
NODES, FEATURES, CLASSES = 80, 40, 3
sys.path.insert(0, str(EXPERIMENTS))
distilled = importlib.import_module("distilled")
sys.path.remove(str(EXPERIMENTS))


def graph(*_) -> dict[str, torch.Tensor]:
    """Three classes, sparse features that tell them, and random edges."""
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(NODES) % CLASSES
    likely = torch.rand(CLASSES, FEATURES, generator=generator)[y] ** 3
    x = (torch.rand(NODES, FEATURES, generator=generator) < likely).float()
    edges = torch.randint(NODES, (2, 4 * NODES), generator=generator)
    parts = {"train": 0, "val": 1, "test": 2}
    masks = {name: torch.arange(NODES) // CLASSES % 3 == part for name, part in parts.items()}
    return {"x": x, "edges": edges, "y": y, **masks}


def test_a_case_from_its_graph_to_the_summary(monkeypatch, tmp_path):
    monkeypatch.setattr(distilled, "read", graph)
    arguments = argparse.Namespace(
        study=True, seeds=2, models=["GCNConv", "GAE"], graphs=["Cora", "CS"], forms=None
    )
    cases = list(distilled.cases(arguments))
    assert len(cases) == 2 * (2 + 1)  # links on Cora alone
    assert cases[0]["forms"][0] == "bin"
    forms = ["bin:1:epochs=4", "bin:2:epochs=4", "T"]
    found = distilled.run(({**cases[0], "forms": forms}, None, "cpu"), tmp_path)
    assert list(found["students"]) == forms
    assert {student["differing_nodes"] for student in found["students"].values()} == {0}
    assert len({student["teacher_test"] for student in found["students"].values()}) == 1
    row = distilled.summary([found])[0]
    assert row["gaps"] == {"Cora": found["students"][forms[0]]["gap"]}


def test_forms_of_the_study_name_fields_of_a_recipe():
    assert len(set(distilled.STUDY)) == len(distilled.STUDY)
    for form in distilled.STUDY:
        recipe = distilled.arguments_of(form)["recipe"]
        assert set(recipe) <= set(DistillRecipe.model_fields)
        DistillRecipe(**{"epochs": 1, "learning_rate": 0.01, **recipe})
    assert distilled.arguments_of("bin:2") == {"precision": "bin", "widen": 2.0, "recipe": {}}
