"""Sums over gathered words are those of the whole graph, to the bit, for every number of ranks."""

import gloo_ranks
import numpy as np
import pytest
import torch

from bitgnn import BitAdjacency, BitTensor
from bitgnn.distributed import PowerLawGraph
from bitgnn.distributed.drawing import drawn_bits, drawn_rows
from bitgnn.distributed.places import Places
from bitgnn.ops import bspmm


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_ranks_aggregate_as_one_process(graph, write, tmp_path, spawn, world_size):
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
    spawn(gloo_ranks.aggregate, world_size, cases, str(tmp_path))
    found = [torch.load(tmp_path / f"rank-{rank}.pt") for rank in range(world_size)]
    for name, sums in expected.items():
        nodes = torch.cat([rank[f"{name}.nodes"] for rank in found])
        assert sorted(nodes.tolist()) == list(range(len(sums)))
        assert torch.equal(torch.cat([rank[f"{name}.sums"] for rank in found]), sums[nodes]), name


@pytest.mark.parametrize("world_size", [1, 3])
def test_drawn_graphs_are_the_same_for_every_number_of_ranks(tmp_path, spawn, world_size):
    drawn, x = PowerLawGraph(300, 4000, 64, seed=2), None
    cases = {"drawn": (drawn, x, {"chunk_rows": 64})}
    spawn(gloo_ranks.aggregate, world_size, cases, str(tmp_path))
    found = [torch.load(tmp_path / f"rank-{rank}.pt") for rank in range(world_size)]
    sums = torch.cat([rank["drawn.sums"] for rank in found])
    places = Places.of((0, 300), 0, None, None)
    ((rowptr, columns),) = drawn_rows(drawn, places, torch.device("cpu"))
    assert 3700 < int(rowptr[-1]) < 4300
    assert rowptr.diff().max() > 10 * rowptr.diff().double().mean()
    whole = BitAdjacency(rowptr, columns.to(torch.int32), 300)
    bits = drawn_bits(drawn, places, torch.device("cpu"))
    assert torch.equal(sums, bspmm.bbf(bits, whole, integer=True))


def test_places_are_found_and_left_again():
    for starts in ((0, 10), (0, 4, 4, 11), (0, 0, 9), (0, 7, 14, 20)):
        for rows in (1, 3, 100):
            places = Places.of(starts, 0, rows, None)
            everyone = torch.arange(starts[-1])
            at = places.of_rows(everyone)
            assert len(at.unique()) == starts[-1]
            assert int(at.max()) < places.count
            assert torch.equal(places.rows_at(at), everyone)
