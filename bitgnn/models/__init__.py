"""Whole models built from the layers: the papers' networks for graphs, images and text."""

from collections.abc import Callable
from functools import partial

from bitgnn.models.bincnn import BinCNN, bincnn
from bitgnn.models.decoder import Decoder, KeyValueCache
from bitgnn.models.ensemble import Ensemble
from bitgnn.models.ensemble_fitting import fit_bagging, fit_boosting
from bitgnn.models.graph_models import GCN, GraphSAGE, GraphSAINT
from bitgnn.models.image_networks import MLP, VGG, AlexNet, ImageNetwork, alexnet, mlp, vgg, vgg16
from bitgnn.models.light_gcn import LightGCN
from bitgnn.models.packed import (
    from_pretrained,
    pretrained,
    pretrained_card,
    pretrained_folder,
    pretrained_names,
)
from bitgnn.models.resnet import DEPTHS, ResNet, resnet

__all__ = [
    "GCN",
    "IMAGE_NETWORKS",
    "MLP",
    "VGG",
    "AlexNet",
    "BinCNN",
    "Decoder",
    "Ensemble",
    "GraphSAGE",
    "GraphSAINT",
    "ImageNetwork",
    "KeyValueCache",
    "LightGCN",
    "ResNet",
    "alexnet",
    "bincnn",
    "fit_bagging",
    "fit_boosting",
    "from_pretrained",
    "mlp",
    "pretrained",
    "pretrained_card",
    "pretrained_folder",
    "pretrained_names",
    "resnet",
    "vgg",
    "vgg16",
]

IMAGE_NETWORKS: dict[str, Callable[..., ImageNetwork]] = {
    make.__name__: make for make in (mlp, vgg, alexnet, vgg16, bincnn)
} | {f"resnet{depth}": partial(resnet, depth) for depth in DEPTHS}
"""Makers of networks for images by name; each takes ``precision``, ``classes`` and ``width``."""
