"""The study of the papers' tables: its configurations, and one run from its file to the summary."""

import argparse
import importlib
import sys
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from bitgnn.data import dataset_names

EXPERIMENTS = Path(__file__).resolve().parents[2] / "scripts" / "experiments"
sys.path.insert(0, str(EXPERIMENTS))
papers = importlib.import_module("papers")
sys.path.remove(str(EXPERIMENTS))


def test_every_row_of_the_tables_has_a_configuration():
    names = {file.stem for file in papers.CONFIGS.glob("*.yaml")}
    rows = {f"{model}_{graph}" for model in ("indgcn", "sage", "saint")
            for graph in ("flickr", "reddit")}  # fmt: skip
    assert rows <= names
    for name in names:
        config = papers.read_config(name)
        assert config["data"] in dataset_names()
        assert config["forms"] == ["full", "bin"]


def test_a_run_from_its_file_to_the_summary(monkeypatch, tmp_path):
    y = torch.arange(60) % 3
    x = torch.randn(60, 20, generator=torch.Generator().manual_seed(0)) + 2 * torch.eye(3, 20)[y]
    edges = torch.stack([torch.arange(60), (torch.arange(60) + 3) % 60])  # of the same class
    masks = {f"{part}_mask": torch.arange(60) // 20 == number
             for number, part in enumerate(("train", "val", "test"))}  # fmt: skip
    data = Data(x=x, edge_index=edges, y=y, **masks)
    monkeypatch.setattr(papers, "load", lambda *_, **__: data)
    file = tmp_path / "tiny.yaml"
    file.write_text(
        "data: Cora\nhidden: 8\nseeds: 2\nforms: ['full:1:epochs=4', 'bin:2:epochs=4']\n"
        "loader: {kind: neighbor, num_neighbors: [4, 3], batch_size: 11}\n"
    )
    cases = list(papers.cases(argparse.Namespace(configs=[str(file)], seeds=0, forms=[])))
    assert [case["seed"] for case in cases] == [0, 1]
    found = papers.run((cases[0], None, "cpu"), tmp_path / "parts")
    assert {student["differing_nodes"] for student in found["students"].values()} == {0}
    rows = papers.summary([found])
    assert [row["form"] for row in rows] == ["full:1:epochs=4", "bin:2:epochs=4", "fp32"]
    file.write_text("data: Cora\nwalks: 3\n")
    with pytest.raises(SystemExit, match=r"tiny.yaml: expected data and .* got \['data', 'walks'"):
        papers.read_config(str(file))
