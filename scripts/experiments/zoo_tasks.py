"""Tasks of the packed models that the package brings: networks, data, and how they are scored."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import distilled_images
import torch
import torch_geometric.nn as pyg
from distilled_images import Batches, Network, accuracy
from image_sets import load_images
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import RandomLinkSplit
from torch_geometric.utils import grid

from bitgnn import BWTAConfig
from bitgnn.data import load
from bitgnn.models import mlp, resnet, vgg

__all__ = ["TASKS", "Task"]

SPLIT_SEED = 0
MIT = "MIT (the data of the PyG class)"
NO_LICENCE = "none stated by its authors; for research"
GRID, PIXEL_LEVELS, GRID_TRAIN, GRID_VAL = 8, 16, 1000, 300
TOKENS, LENGTH = 512, 48
LONG_SEEDS = 2
"""Of images and texts, whose trainings are long."""
TEXT_SIZES = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256,
    "max_position_embeddings": LENGTH,
}  # fmt: skip


@dataclass(frozen=True)
class Task:
    """A model of the zoo.

    Attributes:
        kind: what is predicted.
        network: the float network, in words.
        data: the data, in words.
        licence: of the data.
        call: the call of the frozen model, in code.
        make: gives the untrained float model, the training data and options of ``distill()``,
            from the data folder and a device.
        score: of a model on the test rows, from the data folder: a share of right answers, or the
            area under the ROC curve.
        example: arguments of one call, from the data folder.
        metric: name of the score.
        seeds: how many trainings there are.
        part: gives the module to freeze.
    """

    kind: str
    network: str
    data: str
    licence: str
    call: str
    make: Callable[[str | None, str], tuple[nn.Module, Any, dict[str, Any]]]
    score: Callable[[Any, str | None, str], float]
    example: Callable[[str | None, str], Any]
    metric: str = "accuracy"
    seeds: int = 3
    part: Callable[[nn.Module], nn.Module] = field(default=lambda model: model)


# Nodes


@lru_cache(2)
def graph(name: str, root: str | None, device: str) -> Data:
    """A graph with its first public split, or 20 and 30 nodes a class."""
    return load(name, root).to(device)


def _node_model(
    kind: str, options: dict[str, Any], name: str, root: str | None, device: str
) -> Any:
    data = graph(name, root, device)
    sizes = data.x.size(1), options["hidden"], options.get("layers", 2), int(data.y.max()) + 1
    more = {key: value for key, value in options.items() if key not in ("hidden", "layers")}
    return getattr(pyg, kind)(*sizes, dropout=0.5, **more).to(device), data, {}


@torch.no_grad()
def _node_score(name: str, model: Any, root: str | None, device: str) -> float:
    data = graph(name, root, device)
    right = model(data.x, data.edge_index).argmax(1) == data.y
    return float(right[data.test_mask].float().mean())


def _node_example(name: str, root: str | None, device: str) -> Any:
    data = graph(name, root, device)
    return data.x, data.edge_index


def nodes(kind: str, name: str, hidden: int = 64, licence: str = MIT, **options: Any) -> Task:
    """A network of PyG for the classes of a graph's nodes."""
    said = ", ".join(f"{key} {value}" for key, value in options.items())
    return Task(
        "classes of nodes",
        f"torch_geometric.nn.{kind}, {hidden} hidden channels, "
        f"{options.get('layers', 2)} layers{', ' if said else ''}{said}",
        f"{name}, split of bitgnn.data.load({name!r})",
        licence,
        "model(data.x, data.edge_index)",
        partial(_node_model, kind, {"hidden": hidden, **options}, name),
        partial(_node_score, name),
        partial(_node_example, name),
    )


# Links


@lru_cache(2)
def link_parts(name: str, root: str | None, device: str) -> tuple[Data, Data, Data]:
    """Training, validation and test parts: 5 and 10 per cent of the edges are held out."""
    seed_everything(SPLIT_SEED)  # pairs are drawn by NumPy, too
    whole = load(name, root)
    split = RandomLinkSplit(num_val=0.05, num_test=0.1, is_undirected=True)
    parts = split(Data(x=whole.x, edge_index=whole.edge_index))
    return tuple(part.to(device) for part in parts)


def _link_model(name: str, root: str | None, device: str) -> Any:
    training, validation, _ = link_parts(name, root, device)
    model = pyg.GAE(pyg.GCN(training.x.size(1), 64, 2, 16))
    return model.to(device), training, {"validation": validation}


@torch.no_grad()
def _link_score(name: str, model: Any, root: str | None, device: str) -> float:
    test = link_parts(name, root, device)[2]
    z = getattr(model, "encode", model)(test.x, test.edge_index)
    first, second = test.edge_label_index
    scores = (z[first] * z[second]).sum(1)
    return float(roc_auc_score(test.edge_label.cpu(), scores.cpu()))


def _link_example(name: str, root: str | None, device: str) -> Any:
    test = link_parts(name, root, device)[2]
    return test.x, test.edge_index


def links(name: str) -> Task:
    """A graph autoencoder; its encoder is packed, a pair's score is an inner product."""
    return Task(
        "links",
        "torch_geometric.nn.GAE of a GCN, 64 hidden channels, 16 out",
        f"{name}, RandomLinkSplit(num_val=0.05, num_test=0.1) with seed {SPLIT_SEED}",
        MIT,
        "z = model(data.x, data.edge_index); (z[i] * z[j]).sum(-1)",
        partial(_link_model, name),
        partial(_link_score, name),
        partial(_link_example, name),
        "AUC",
        part=lambda model: model.encoder if isinstance(model, pyg.GAE) else model,
    )


# Graphs


class GridGIN(nn.Module):
    """Three GINConv with batch norms, the mean over the nodes, a linear layer."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.gin = pyg.GIN(features, hidden, 3, norm="batch_norm", train_eps=True)
        self.out = nn.Linear(hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Scores of every graph."""
        h = self.gin(x, edge_index).relu()
        return self.out(pyg.global_mean_pool(h, batch))


@lru_cache(2)
def grids() -> tuple[list[Data], list[Data], list[Data]]:
    """scikit-learn's digits, each a graph of its 64 pixels: features are levels, row and column."""
    pixels, labels = load_digits(return_X_y=True)
    edges, _ = grid(GRID, GRID)
    place = torch.eye(GRID)
    places = torch.cat([place.repeat_interleave(GRID, 0), place.repeat(GRID, 1)], 1)
    thresholds = torch.arange(1, PIXEL_LEVELS, 2)
    graphs = []
    for image, label in zip(torch.from_numpy(pixels), labels, strict=True):
        levels = (image[:, None] >= thresholds).float()
        graphs.append(Data(torch.cat([levels, places], 1), edges, y=torch.tensor([int(label)])))
    order = torch.randperm(len(graphs), generator=torch.Generator().manual_seed(SPLIT_SEED))
    parts = order.split([GRID_TRAIN, GRID_VAL, len(graphs) - GRID_TRAIN - GRID_VAL])
    return tuple([graphs[number] for number in part.tolist()] for part in parts)


def _grid_model(root: str | None, device: str) -> Any:
    training, validation, _ = grids()
    moved = ([one.to(device) for one in part] for part in (training, validation))
    training, validation = moved
    model = GridGIN(training[0].x.size(1), 128, 10)
    return model.to(device), training, {"validation": validation}


@torch.no_grad()
def _grid_score(model: Any, root: str | None, device: str) -> float:
    right, test = 0, grids()[2]
    for batch in DataLoader(test, 128):
        batch = batch.to(device)
        right += int((model(batch.x, batch.edge_index, batch.batch).argmax(1) == batch.y).sum())
    return right / len(test)


def _grid_example(root: str | None, device: str) -> Any:
    batch = next(iter(DataLoader(grids()[2], 64))).to(device)
    return batch.x, batch.edge_index, batch.batch


# Images


@lru_cache(1)
def images(name: str, root: str | None) -> Any:
    """Images to train on and to test on."""
    return load_images(name, root)


def _image_model(network: Network, root: str | None, device: str) -> Any:
    (pixels, labels), _ = images(network.dataset, root)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SPLIT_SEED))
    held = order[: int(distilled_images.HELD_OUT * len(order))]
    kept = order[len(held) :]
    training, validation = (
        Batches(pixels[rows].to(device), labels[rows].to(device), augmentation)
        for rows, augmentation in ((kept, network), (held, None))
    )
    return network.build().to(device), training, {"validation": validation}


def _image_score(network: Network, model: Any, root: str | None, device: str) -> float:
    pixels, labels = images(network.dataset, root)[1]
    return accuracy(model, Batches(pixels.to(device), labels.to(device)))


def _image_example(network: Network, root: str | None, device: str) -> Any:
    pixels, labels = images(network.dataset, root)[1]
    inputs, _ = next(iter(Batches(pixels[:8].to(device), labels[:8].to(device))))
    return (inputs,)


def picture(words: str, network: Network, data: str, licence: str) -> Task:
    """A network of the papers for images."""
    return Task(
        "classes of images", words, data, licence, "model((images.float() - 128) / 64)",
        partial(_image_model, network), partial(_image_score, network),
        partial(_image_example, network), seeds=LONG_SEEDS,
    )  # fmt: skip


# Texts: transformers and tokenizers are imported by those who ask for them


@lru_cache(1)
def sentences(root: str | None) -> tuple[int, Any, str]:
    """Number of tokens, the three parts, and the tokenizer as JSON."""
    from sentences import load_sentences, tokenize, trained_tokenizer

    parts = load_sentences(root)
    tokenizer = trained_tokenizer(parts[0], TOKENS, LENGTH)
    count, found = tokenize(parts, tokenizer)
    return count, found, tokenizer.to_str()


def _sentences(root: str | None, device: str) -> Iterable[Any]:
    from distilled_texts import Sentences

    parts = sentences(root)[1]
    return tuple(Sentences(part.to(device), part is parts[0]) for part in parts)


def _text_model(root: str | None, device: str) -> Any:
    from transformers import BertConfig, BertForSequenceClassification

    training, validation, _ = _sentences(root, device)
    config = BertConfig(vocab_size=sentences(root)[0], num_labels=2, **TEXT_SIZES)
    options = {"validation": validation, "precision": BWTAConfig(), "epochs": 6}
    return BertForSequenceClassification(config).to(device), training, options


def _text_score(model: Any, root: str | None, device: str) -> float:
    from distilled_texts import answers

    found, labels = answers(model, _sentences(root, device)[2])
    return float((found == labels).float().mean())


def _text_example(root: str | None, device: str) -> Any:
    batch = next(iter(_sentences(root, device)[2]))
    return {name: batch[name][:8] for name in ("input_ids", "attention_mask")}


CIFAR = "cifar10_jpeg_12k"
CIFAR_WORDS = "CIFAR-10, 10 000 + 2 000 lossy JPEG images (accuracies do not compare with others')"
DIGITS_LICENCE = "CC BY 4.0 (UCI, optical recognition of handwritten digits)"
TASKS: dict[str, Task] = {
    "gcn-digits": nodes("GCN", "digits", licence=DIGITS_LICENCE),
    "sage-digits": nodes("GraphSAGE", "digits", licence=DIGITS_LICENCE),
    "gat-digits": nodes("GAT", "digits", licence=DIGITS_LICENCE, heads=8),
    "gcn-cora": nodes("GCN", "Cora"),
    "gcn-citeseer": nodes("GCN", "CiteSeer"),
    "gcn-pubmed": nodes("GCN", "PubMed"),
    "gcn-photo": nodes("GCN", "Photo"),
    "sage-cora-ml": nodes("GraphSAGE", "Cora_ML"),
    "sage-photo": nodes("GraphSAGE", "Photo"),
    "sage-tolokers": nodes("GraphSAGE", "Tolokers", 256),
    "gin-cora": nodes("GIN", "Cora"),
    "gat-cora": nodes("GAT", "Cora", heads=8),
    "gae-cora": links("Cora"),
    "gae-citeseer": links("CiteSeer"),
    "gin-digit-grids": Task(
        "classes of graphs", "three GINConv of 128 with batch norms, mean pool, linear",
        "scikit-learn's digits as grids of 64 nodes, 1 000, 300 and 497 graphs", DIGITS_LICENCE,
        "model(batch.x, batch.edge_index, batch.batch)", _grid_model, _grid_score, _grid_example,
    ),
    "mlp-mnist": picture(
        "784-512-512-512-10, bitgnn.models.mlp(width=0.5)",
        Network(partial(mlp, "fp32", width=0.5), "mnist", False, 1), "MNIST", "CC BY-SA 3.0",
    ),
    "vgg-cifar": picture(
        "bitgnn.models.vgg(width=0.25)",
        Network(partial(vgg, "fp32", width=0.25), CIFAR, True, 4), CIFAR_WORDS, NO_LICENCE,
    ),
    "resnet14-cifar": picture(
        "bitgnn.models.resnet(14, width=0.25)",
        Network(partial(resnet, 14, "fp32", width=0.25), CIFAR, True, 4), CIFAR_WORDS, NO_LICENCE,
    ),
    "bert-sst2": Task(
        "classes of sentences", "BertForSequenceClassification, 2 layers of 64, 512 word pieces",
        "SST-2 of GLUE, scored on its development sentences", NO_LICENCE,
        "model(input_ids=ids, attention_mask=mask).logits", _text_model, _text_score,
        _text_example, seeds=LONG_SEEDS,
    ),
}  # fmt: skip
"""The models of the zoo by name."""
