"""Training on images: the networks of the papers, binary and in full precision, with proof."""

from experiments.images.loop import TrainedNetwork, train_network
from experiments.images.proof import FrozenCheck, check_frozen
from experiments.images.recipe import ImageConfig, ImageRecipe, load_image_config
from experiments.images.unit import ImageRun, ImageRuns, train_image_unit

__all__ = [
    "FrozenCheck",
    "ImageConfig",
    "ImageRecipe",
    "ImageRun",
    "ImageRuns",
    "TrainedNetwork",
    "check_frozen",
    "load_image_config",
    "train_image_unit",
    "train_network",
]
