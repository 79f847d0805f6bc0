"""The benchmark of samplers: its own in plain torch, and what a quick run leaves."""

import json

import torch

from bench.sampling import plain_sample
from bench_sampling import main


def test_the_plain_sampler_takes_edges_of_nodes_that_were_reached():
    generator = torch.Generator().manual_seed(0)
    into = torch.randint(48, (400,), generator=generator)  # two nodes alone
    colptr = torch.zeros(51, dtype=torch.int64)
    colptr[1:] = torch.bincount(into, minlength=50).cumsum(0)
    row = torch.randint(48, (400,), generator=generator)
    seeds = torch.tensor([3, 49, 11])
    edges = plain_sample(colptr, row, seeds, [4, 2])
    assert edges.unique().numel() == edges.numel()
    owners = torch.searchsorted(colptr, edges, right=True) - 1
    assert set(owners.tolist()) <= set(seeds.tolist()) | set(row[edges].tolist())
    assert int(owners.bincount().max()) <= 4


def test_quick_run(tmp_path, capsys):
    output = tmp_path / "sampling.json"
    assert main(["--quick", "--repeats", "7", "--output", str(output)]) == 0
    record = json.loads(output.read_text())
    ways = ["without replacement", "with replacement", "disjoint"]
    names = [f"tiny, {fanouts}, {way}" for fanouts in ("[15, 10]", "[25, 10, 5]") for way in ways]
    assert [result["name"] for result in record["results"]] == names
    for result in record["results"]:
        contenders = result["contenders"]
        assert contenders["bitgnn, 1 thread"]["edges"] > 0
        assert contenders["bitgnn, 1 thread"]["edges"] == contenders["bitgnn, 2 threads"]["edges"]
        is_disjoint = result["name"].endswith("disjoint")
        assert ("plain torch, 2 threads" in contenders) == (not is_disjoint)
    assert "million edges a second" in capsys.readouterr().out
