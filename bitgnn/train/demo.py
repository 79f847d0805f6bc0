"""The demonstration's experiment: digits, three forms, small enough for a minute."""

from __future__ import annotations

from bitgnn.train.config import DatasetConfig, ExperimentConfig, Recipe

__all__ = ["demo_config"]


def demo_config(seeds: int) -> ExperimentConfig:
    """Configuration of ``bitgnn demo``.

    Args:
        seeds: number of repeats.
    """
    return ExperimentConfig(
        name="demo",
        dataset=DatasetConfig(name="digits"),
        hidden_channels=128,
        seeds=seeds,
        forms={
            "fp32": Recipe(
                epochs=200, learning_rate=0.01, weight_decay=5e-4, dropout=0.5, input_norm=False
            ),
            "full": Recipe(epochs=300, learning_rate=0.003, dropout=0.2),
            "bin": Recipe(
                epochs=300,
                learning_rate=0.003,
                schedule="cosine",
                dropout=0.2,
                start_from="full",
                distill=1.0,
            ),
        },
    )
