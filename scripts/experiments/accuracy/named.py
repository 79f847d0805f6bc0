"""Experiments by name: configurations, and the recipe of table 3 on its graphs."""

from __future__ import annotations

from pathlib import Path

from bitgnn.train.config import ExperimentConfig, load_config

__all__ = ["TABLE3", "named_experiment"]

TABLE3 = {"gcn_pubmed": "PubMed", "gcn_citeseer": "CiteSeer", "gcn_cora": "Cora"}
"""Graphs of the recipe ``gcn.yaml`` by the experiment's name, slowest first."""


def named_experiment(folder: Path, name: str) -> ExperimentConfig:
    """An experiment of a folder of configurations.

    Raises:
        ConfigError: there is no such file, or it is wrong.
    """
    if name in TABLE3:
        return load_config(folder / "gcn.yaml").on(TABLE3[name])
    return load_config(folder / f"{name}.yaml")
