"""Sums over gathered words are those of the whole graph, to the bit, for every number of ranks."""

import gloo_ranks
import numpy as np
import pytest
import torch
import torch.multiprocessing

from bitgnn import BitAdjacency, BitTensor
from bitgnn.distributed import PowerLawGraph
from bitgnn.ops import bspmm


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_ranks_aggregate_as_one_process(graph, write, tmp_path, monkeypatch, world_size):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    x, wide = torch.randn(40, 33), torch.randn(300, 64)
    made = PowerLawGraph(300, 4000, seed=2)
    large = torch.cat([torch.from_numpy(np.stack(pair)) for pair in made.blocks()], dim=1)
    graphs = {"small": (graph, x), "large": (large, wide)}
    tiny = torch.tensor([[0, 0], [0, 0]])
    graphs["one node"] = tiny, torch.ones(1, 31)
    graphs["no node"] = torch.empty(2, 0, dtype=torch.int64), torch.ones(0, 5)
    cases, expected = {}, {}
    for name, (edges, values) in graphs.items():
        whole = BitAdjacency.from_edge_index(edges, len(values))
        sums = bspmm.bbf(BitTensor.from_float(values), whole, integer=True)
        for order in ("range", "dealt"):
            root = write(edges, 5, x=values, order=order)
            cases[f"{name} {order} from files"] = str(root), None, {}
            options = {"num_nodes": len(values), "order": order}
            cases[f"{name} {order} from edges"] = edges, values, options
            expected[f"{name} {order} from files"] = sums
            expected[f"{name} {order} from edges"] = sums
    torch.multiprocessing.spawn(
        gloo_ranks.aggregate,
        (world_size, str(tmp_path / "store"), cases, str(tmp_path)),
        nprocs=world_size,
    )
    found = [torch.load(tmp_path / f"rank-{rank}.pt") for rank in range(world_size)]
    for name, sums in expected.items():
        nodes = torch.cat([rank[f"{name}.nodes"] for rank in found])
        assert sorted(nodes.tolist()) == list(range(len(sums)))
        assert torch.equal(torch.cat([rank[f"{name}.sums"] for rank in found]), sums[nodes]), name
