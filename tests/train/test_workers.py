"""Runs side by side in processes: as one after the other, and nothing begun in vain."""

import dataclasses
import io

import pytest
from rich.console import Console
from tiny_experiment import TINY

from bitgnn.data import DataError
from bitgnn.train import GraphSource, Job, RunOptions, RunStore, load_config, train_all
from bitgnn.train.workers import train_side_by_side

QUIET = Console(file=io.StringIO())


@pytest.fixture
def config(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)
    return load_config(tmp_path / "tiny.yaml")


@pytest.mark.slow
def test_side_by_side_equals_one_after_the_other(config, tmp_path):
    jobs = [Job(config, tmp_path / "side")]
    (found,) = train_side_by_side(jobs, None, RunOptions(), 2, QUIET, check_frozen=True)
    store = RunStore(tmp_path / "alone", config)
    alone = train_all(config, GraphSource(config), store, QUIET)
    assert [dataclasses.replace(one.run, seconds=0) for one in found] == [
        dataclasses.replace(run, seconds=0) for run in alone
    ]
    assert [one.difference is None for one in found] == [True, False, False] * 2
    assert all(one.mismatch is None for one in found)


def test_missing_data_is_noticed_before_any_worker_starts(config, tmp_path):
    config = config.model_copy(
        update={"dataset": config.dataset.model_copy(update={"name": "Kora"})}
    )
    with pytest.raises(DataError, match=r"dataset: .*name must be one of .*got 'Kora'"):
        train_side_by_side([Job(config, tmp_path / "out")], None, RunOptions(), 2, QUIET)
    assert not (tmp_path / "out").exists()
