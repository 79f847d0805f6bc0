"""Training on text: encoders on sentences, a decoder on characters; float, binary and BWTA."""

from experiments.text.loop import TrainedText, train_text
from experiments.text.recipe import (
    DecoderConfig,
    DecoderRecipe,
    Distillation,
    TextConfig,
    TextRecipe,
    load_text_config,
)
from experiments.text.recorded import side_by_side
from experiments.text.unit import TextRun, TextRuns, TextUnit, trained_network

__all__ = [
    "DecoderConfig",
    "DecoderRecipe",
    "Distillation",
    "TextConfig",
    "TextRecipe",
    "TextRun",
    "TextRuns",
    "TextUnit",
    "TrainedText",
    "load_text_config",
    "side_by_side",
    "train_text",
    "trained_network",
]
