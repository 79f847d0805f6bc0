"""The mini-batch benchmark: its sampler."""

import torch

from bench.sampling import neighbour_batches


def _graph(num_nodes=50, num_edges=400):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(num_nodes - 2, (2, num_edges), generator=generator)  # two nodes alone


def test_batches_are_parts_of_the_graph_with_their_seeds_in_front():
    edge_index = _graph()
    known = {tuple(edge) for edge in edge_index.t().tolist()}
    seeds = torch.tensor([3, 49, 11, 0, 7])
    batches = list(neighbour_batches(edge_index, 50, fanouts=[4, 2], batch_size=2, seeds=seeds))
    assert [batch.batch_size for batch in batches] == [2, 2, 1]
    assert torch.equal(torch.cat([b.n_id[: b.batch_size] for b in batches]), seeds)
    for batch in batches:
        assert len(batch.n_id.unique()) == len(batch.n_id)
        edges = batch.n_id[batch.edge_index]
        assert {tuple(edge) for edge in edges.t().tolist()} <= known
        # Every node is a seed or some edge's source, and no node has more edges than drawn.
        reached = set(batch.edge_index[0].tolist()) | set(range(batch.batch_size))
        assert reached == set(range(len(batch.n_id)))
        assert int(batch.edge_index[1].bincount().max()) <= 4
