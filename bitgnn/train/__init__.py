"""Experiments: configuration, training over seeds, measurement and reports."""

from bitgnn.train.batches import LoaderError
from bitgnn.train.build import GraphSource, load_data
from bitgnn.train.checkpoint import CheckpointError
from bitgnn.train.config import (
    ConfigError,
    DatasetConfig,
    ExperimentConfig,
    find_config,
    load_config,
)
from bitgnn.train.demo import demo_config
from bitgnn.train.deploy import FormResult, MismatchError, evaluate
from bitgnn.train.experiment import train_all
from bitgnn.train.log import LogError
from bitgnn.train.loop import TrainedModel, TrainingError, train_model
from bitgnn.train.recipe import FullGraph, Neighbors, RandomWalks, Recipe
from bitgnn.train.report import result_table, write_results
from bitgnn.train.store import OutputError, Run, RunStore
from bitgnn.train.task import NodeTask
from bitgnn.train.unit import RunOptions, train_unit
from bitgnn.train.workers import Job, WorkerError, train_side_by_side

__all__ = [
    "CheckpointError",
    "ConfigError",
    "DatasetConfig",
    "ExperimentConfig",
    "FormResult",
    "FullGraph",
    "GraphSource",
    "Job",
    "LoaderError",
    "LogError",
    "MismatchError",
    "Neighbors",
    "NodeTask",
    "OutputError",
    "RandomWalks",
    "Recipe",
    "Run",
    "RunOptions",
    "RunStore",
    "TrainedModel",
    "TrainingError",
    "WorkerError",
    "demo_config",
    "evaluate",
    "find_config",
    "load_config",
    "load_data",
    "result_table",
    "train_all",
    "train_model",
    "train_side_by_side",
    "train_unit",
    "write_results",
]
