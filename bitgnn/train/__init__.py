"""Experiments: a float model and its binary forms over several seeds, measured and reported."""

from bitgnn._files import OutputError
from bitgnn.data import DataError
from bitgnn.train.config import (
    ConfigError,
    ExperimentConfig,
    LoaderError,
    demo_config,
    find_config,
    load_config,
)
from bitgnn.train.experiment import Forms, GraphSource, MismatchError, Run, train_all
from bitgnn.train.report import FormResult, measured, result_table, write_results

__all__ = [
    "MENDABLE",
    "ConfigError",
    "ExperimentConfig",
    "FormResult",
    "Forms",
    "GraphSource",
    "LoaderError",
    "MismatchError",
    "OutputError",
    "Run",
    "demo_config",
    "find_config",
    "load_config",
    "measured",
    "result_table",
    "train_all",
    "write_results",
]

MENDABLE = (DataError, LoaderError, MismatchError, OutputError, OSError, ValueError)
"""What a user can mend: commands report it in one line, without a trace."""
