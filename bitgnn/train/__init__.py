"""Experiments: configuration, training over seeds, measurement and reports."""

from bitgnn.train.config import ConfigError, ExperimentConfig, Recipe, load_config
from bitgnn.train.demo import demo_config
from bitgnn.train.deploy import FormResult, MismatchError, evaluate
from bitgnn.train.experiment import load_data, train_all
from bitgnn.train.loop import TrainedModel, train_model
from bitgnn.train.report import result_table, write_results
from bitgnn.train.store import OutputError, Run, RunStore

__all__ = [
    "ConfigError",
    "ExperimentConfig",
    "FormResult",
    "MismatchError",
    "OutputError",
    "Recipe",
    "Run",
    "RunStore",
    "TrainedModel",
    "demo_config",
    "evaluate",
    "load_config",
    "load_data",
    "result_table",
    "train_all",
    "train_model",
    "write_results",
]
