"""Whole models built from the layers: the papers' networks for graphs, images and text."""

from bitgnn.models.bert import BertClassifier, BertStates
from bitgnn.models.bincnn import BinCNN, bincnn
from bitgnn.models.decoder import Decoder, KeyValueCache
from bitgnn.models.gcn import GCN
from bitgnn.models.graph_sage import GraphSAGE
from bitgnn.models.graph_saint import GraphSAINT
from bitgnn.models.image_network import ImageNetwork
from bitgnn.models.plain_networks import MLP, VGG, AlexNet, alexnet, mlp, vgg, vgg16
from bitgnn.models.resnet import ResNet, resnet14, resnet18, resnet50, resnet101, resnet152

__all__ = [
    "GCN",
    "IMAGE_NETWORKS",
    "MLP",
    "VGG",
    "AlexNet",
    "BertClassifier",
    "BertStates",
    "BinCNN",
    "Decoder",
    "GraphSAGE",
    "GraphSAINT",
    "ImageNetwork",
    "KeyValueCache",
    "ResNet",
    "alexnet",
    "bincnn",
    "mlp",
    "resnet14",
    "resnet18",
    "resnet50",
    "resnet101",
    "resnet152",
    "vgg",
    "vgg16",
]

IMAGE_NETWORKS = {
    make.__name__: make
    for make in (
        mlp, vgg, resnet14, alexnet, vgg16, resnet18, resnet50, resnet101, resnet152, bincnn,
    )
}  # fmt: skip
"""Makers of networks for images by name; each takes ``precision``, ``classes`` and ``width``."""
