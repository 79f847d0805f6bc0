"""Training on text: encoders on sentences, a decoder on characters; float, binary and BWTA."""

from bitgnn.train.text.loop import TrainedText, train_text
from bitgnn.train.text.recipe import (
    DecoderConfig,
    DecoderRecipe,
    Distillation,
    TextConfig,
    TextRecipe,
    load_text_config,
)
from bitgnn.train.text.recorded import side_by_side
from bitgnn.train.text.unit import TextRun, TextRuns, TextUnit, trained_network

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
