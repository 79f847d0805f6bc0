"""Ranks distill together: equal models, batches of their own, checkpoints for any world size."""

import shutil

import gloo_ranks
import pytest
import torch
from torch_geometric.nn import GCN

from bitgnn.distillation import ranks
from bitgnn.distillation.checkpoint import CheckpointError, read_checkpoint
from bitgnn.distillation.problems import Nodes

NODES, EPOCHS, FLOOR = 90, 4, 0.75
NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
STOPPED = "stopped in the student's third epoch"


def run(spawn, folder, world_size, jobs):
    """Results of all ranks."""
    spawn(gloo_ranks.train, world_size, str(folder), jobs)
    return [torch.load(folder / f"rank-{rank}.pt") for rank in range(world_size)]


def assert_same(one, other):
    """Teachers and students are equal to the bit, statistics and roles of their inputs too."""
    for name in ("teacher", "student"):
        assert one[name].keys() == other[name].keys()
        for key, value in one[name].items():
            assert torch.equal(value, other[name][key]), (name, key)


def rows(result, count):
    """First rows of a history, without times."""
    return [{**row, "seconds": 0} for row in result["history"][:count]]


def test_ranks_are_equal_and_any_number_goes_on(spawn, tmp_path):
    batches = 6  # of an epoch: 45 nodes in eights; teacher and student have one before
    stop = {"stop_after": 2 + EPOCHS * batches + 2 * batches + 1}
    jobs = {
        "whole": ("whole", {}),
        STOPPED: ("kept", stop),
        "stopped for one": ("alone", stop),
        "gone on": ("kept", {}),
        "split": ("split", {"is_split": True}),
        "too few": ("few", {"seeds": torch.tensor([3])}),
    }
    first, second = run(spawn, tmp_path, 2, jobs)
    assert_same(first["whole"], second["whole"])
    assert first["whole"]["score"] == second["whole"]["score"] > FLOOR

    # Layers settle alike on unlike data; before training are two passes and a forward.
    assert_same(first["split"], second["split"])
    kinds = [found["split"]["kinds"] for found in (first, second)]
    assert [found[4] for found in kinds] == ["pattern", "rows"]
    assert kinds[0][6:] == kinds[1][6:] == ["pattern", "activation"] * EPOCHS * batches

    # Every node in each epoch, equally many on both ranks, in another order each time.
    epochs = [
        [torch.cat(found["whole"]["seen"][1:][n * 6 : n * 6 + 6]) for n in range(EPOCHS)]
        for found in (first, second)
    ]
    for mine, others in zip(*epochs, strict=True):
        assert len(mine) == len(others) == NODES // 2
        assert torch.cat([mine, others]).unique().numel() == NODES
    assert not torch.equal(epochs[0][0], epochs[0][1])

    # Going on gives what an uninterrupted training gives, with as many ranks to the bit.
    assert "student" not in first[STOPPED]
    assert 0 < len(first["gone on"]["seen"]) < len(first["whole"]["seen"]) / 2
    assert_same(first["gone on"], first["whole"])
    assert_same(second["gone on"], first["whole"])

    # A log that two ranks began, one process ends.
    alone = gloo_ranks.distill_together(1, str(tmp_path / "alone"))
    assert alone["score"] > FLOOR
    assert rows(alone, 1) == rows(first["whole"], 1)
    assert len(alone["history"]) == EPOCHS

    for found in (first, second):
        assert found["too few"]["error"] == (
            "loader must have a sample at least for each of 2 ranks, got 1"
        )
    assert (tmp_path / "kept" / "student.jsonl").read_text().count("\n") == EPOCHS


def test_two_ranks_end_the_log_of_one_process(spawn, tmp_path):
    path = tmp_path / "log" / "teacher.checkpoint"
    assert "student" not in gloo_ranks.distill_together(1, str(tmp_path / "log"), 2 * 6 + 1)
    begun = read_checkpoint(path)[0]["history"]["rows"]
    first, second = run(spawn, tmp_path, 2, {"more": ("log", {})})
    assert_same(first["more"], second["more"])
    assert first["more"]["score"] > FLOOR
    ended = read_checkpoint(path)[0]["history"]["rows"]
    assert torch.equal(ended[: len(begun)], begun)
    assert 0 < len(begun) < len(ended) == EPOCHS


def test_one_rank_trains_as_one_process_does(spawn, tmp_path):
    (found,) = run(spawn, tmp_path, 1, {"one": ("log", {})})
    alone = gloo_ranks.distill_together(1, str(tmp_path / "alone"))
    assert_same(found["one"], alone)
    assert (tmp_path / "log" / "student.checkpoint").is_file()


def test_damaged_checkpoints_of_ranks_are_refused(spawn, tmp_path):
    run(spawn, tmp_path, 2, {"some": ("log", {"stop_after": 13})})
    path = tmp_path / "log" / "teacher.checkpoint"
    groups, values = read_checkpoint(path)
    assert values["epoch"] == len(groups["history"]["rows"]) > 0
    assert groups["optimizer"]["0.step"].shape == ()
    # A job killed between two renames leaves the one before.
    old = path.rename(path.with_name("teacher.checkpoint.old"))
    assert read_checkpoint(path)[1] == values
    shutil.copytree(old, path)
    (path / "shard-00002-model-00001-of-00001.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"teacher\.checkpoint: no readable checkpoint"):
        read_checkpoint(path)


def test_loaders_that_cannot_be_split_are_refused():
    data = gloo_ranks.toy_graph()
    problem = Nodes(data, GCN(12, 8, 2, 3), [data], None, 0)
    with pytest.raises(ValueError, match=r"loader must be a DataLoader of samples.*got list"):
        ranks.split(problem, seed=0)


@pytest.mark.parametrize("missing", ["MASTER_ADDR", "WORLD_SIZE"])
def test_a_missing_meeting_point_is_named(monkeypatch, missing):
    for name in NAMES:
        monkeypatch.setenv(name, "1")
    monkeypatch.delenv(missing)
    told = pytest.raises(ValueError, match=f"environment variable {missing} expected")
    with told, ranks.group("cpu"):
        pass


def test_a_meeting_point_that_nobody_keeps_is_named(monkeypatch):
    values = ("1", "2", "127.0.0.1", "9")
    for name, value in zip(NAMES, values, strict=True):
        monkeypatch.setenv(name, value)
    told = pytest.raises(ConnectionError, match=r"not meet at 127\.0\.0\.1:9 within 1 seconds")
    with told, ranks.group("cpu", timeout=1):
        pass
