"""Experiments: configuration, training over seeds, measurement and reports."""

from bitgnn.data import DataError
from bitgnn.train.batches import LoaderError
from bitgnn.train.build import GraphSource
from bitgnn.train.checkpoint import CheckpointError
from bitgnn.train.config import ConfigError, ExperimentConfig, find_config, load_config
from bitgnn.train.deploy import MismatchError, evaluate
from bitgnn.train.experiment import demo_config, train_all
from bitgnn.train.loop import TrainingError
from bitgnn.train.recipe import Recipe
from bitgnn.train.report import result_table, write_results
from bitgnn.train.run import RunOptions
from bitgnn.train.store import OutputError, RunStore
from bitgnn.train.workers import Job, WorkerError, train_side_by_side

__all__ = [
    "MENDABLE",
    "CheckpointError",
    "ConfigError",
    "ExperimentConfig",
    "GraphSource",
    "Job",
    "LoaderError",
    "MismatchError",
    "OutputError",
    "Recipe",
    "RunOptions",
    "RunStore",
    "TrainingError",
    "WorkerError",
    "demo_config",
    "evaluate",
    "find_config",
    "load_config",
    "result_table",
    "train_all",
    "train_side_by_side",
    "write_results",
]

MENDABLE = (
    CheckpointError, ConfigError, DataError, LoaderError, MismatchError, OutputError, TrainingError,
    WorkerError, OSError, ValueError,
)  # fmt: skip
"""What a user can mend: commands report it in one line, without a trace."""
