"""Small graphs in parts, and the whole graph put together from the parts of all ranks."""

import multiprocessing

import pytest
import torch
import torch.multiprocessing

from bitgnn.distributed import Partitioner, load_partition


@pytest.fixture
def spawn(tmp_path, monkeypatch):
    """Runs a function of ``gloo_ranks`` in processes of so many ranks, which import but once."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    multiprocessing.set_forkserver_preload(["gloo_ranks", "torch_geometric"])

    def run(function, world_size, *arguments):
        torch.multiprocessing.start_processes(
            function,
            (world_size, str(tmp_path / f"store-{world_size}"), *arguments),
            nprocs=world_size,
            start_method="forkserver",
        )

    return run


@pytest.fixture
def graph():
    """Edges of 40 nodes: a hub, duplicates, loops; the last three nodes are isolated."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(0, 37, (2, 200), generator=generator)
    hub = torch.stack([torch.arange(37), torch.full((37,), 5)])
    return torch.cat([drawn, drawn[:, :9], hub, torch.tensor([[4, 4], [4, 4]])], dim=1)


@pytest.fixture
def write(tmp_path):
    """Writes a partition into a fresh folder, which it returns."""
    folders = iter(tmp_path / f"partition-{number}" for number in range(100))

    def made(data, num_parts, **options):
        root = next(folders)
        Partitioner(data, num_parts, root, **options).generate_partition()
        return root

    return made


@pytest.fixture
def joined():
    """Parts of all ranks: row pointers of each rank's, user's nodes, dense matrix of all rows."""

    def read(root, world_size):
        found = [load_partition(root, rank, world_size) for rank in range(world_size)]
        nodes = torch.cat([part.nodes for part in found])
        dense = torch.cat([part.adjacency.to_dense() for part in found])
        return found, nodes, dense

    return read
