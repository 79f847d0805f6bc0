"""The graphs that the tuner is judged on, and the untrained models that are timed on them."""

import numpy as np
import pytest
import torch

from bench.tasks import NodeTask, synthetic_task
from bench.tuner.graphs import load_graph, untrained_workload
from bench.tuner.structures import read_structure, write_structures
from bitgnn.data import DataError


def test_unknown_keys_are_refused():
    with pytest.raises(ValueError, match=r"key must be one of \['cora', .* got 'citation'"):
        load_graph("citation")


def test_a_real_graph():
    try:
        task = load_graph("cora")
    except DataError as error:
        pytest.skip(str(error))
    assert (task.name, task.num_nodes, task.num_classes) == ("Cora", 2708, 7)


@pytest.mark.parametrize("kind", ["GCN", "GraphSAGE", "GraphSAINT"])
def test_untrained_models_binarise_the_features_as_trained_ones(kind):
    task = synthetic_task(90, 240, 70)
    task = NodeTask(task.name, task.x + 3.0, task.edge_index, 4)  # all signs +1 but for statistics
    workload = untrained_workload(task, kind)
    assert type(workload.model).__name__ == kind
    assert not workload.model.training
    again = untrained_workload(task, kind)
    pairs = zip(workload.model.parameters(), again.model.parameters(), strict=True)
    assert all(torch.equal(one, two) for one, two in pairs)
    norm = getattr(workload.model, "norm", None)
    if norm is not None:
        assert norm.running_mean.mean() == pytest.approx(3.0, abs=0.2)


class TestStructures:
    @pytest.fixture
    def task(self):
        task = synthetic_task(90, 240, 70)
        return NodeTask("Made", (task.x > 1.0).float(), task.edge_index, 4, 48)

    def test_edges_and_sizes_come_back_and_features_are_as_sparse(self, task, tmp_path):
        path = tmp_path / "structures.npz"
        write_structures(path, {"photo": task})
        found = read_structure(path, "photo", "cpu")
        assert found.name == "Made (made-up features)"
        assert (found.num_nodes, found.num_classes, found.hidden) == (90, 4, 48)
        assert set(map(tuple, found.edge_index.T.tolist())) == set(
            map(tuple, task.edge_index.T.tolist())
        )
        assert found.num_edges == task.num_edges
        assert float(found.x.mean()) == pytest.approx(float(task.x.mean()), abs=0.03)
        assert set(found.x.unique().tolist()) == {0.0, 1.0}
        assert read_structure(path, "cs", "cpu") is None
        assert load_graph("photo", structures=path).name == found.name

    def test_nodes_without_neighbours_at_the_end_are_kept(self, tmp_path):
        path = tmp_path / "structures.npz"
        task = NodeTask("Made", torch.ones(5, 3), torch.tensor([[4, 0], [0, 1]]), 2)
        write_structures(path, {"cs": task})
        found = read_structure(path, "cs", "cpu")
        assert found.num_nodes == 5
        assert found.edge_index.tolist() == [[4, 0], [0, 1]]

    @pytest.mark.parametrize("content", [b"", b"text", "other arrays"])
    def test_other_files_are_refused(self, content, tmp_path):
        path = tmp_path / "structures.npz"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            np.savez(path, **{"cs/name": np.array("x")})
        with pytest.raises(ValueError, match="no file of structures"):
            read_structure(path, "cs", "cpu")
