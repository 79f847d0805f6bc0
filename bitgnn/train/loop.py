"""Full-graph training of one model: the state at the lowest validation loss is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.data import Data

from bitgnn.models import GCN
from bitgnn.train.config import Recipe

__all__ = ["TrainedModel", "row_normalized", "train_model"]


@dataclass(frozen=True)
class TrainedModel:
    """Result of one training.

    Attributes:
        state: parameters and buffers at the epoch chosen.
        test_accuracy: share of test nodes classified rightly at that epoch.
        val_accuracy: the same of the validation nodes.
        val_loss: the lowest validation loss.
        epoch: the epoch chosen, from 0.
    """

    state: dict[str, Tensor]
    test_accuracy: float
    val_accuracy: float
    val_loss: float
    epoch: int


def row_normalized(x: Tensor) -> Tensor:
    """Rows divided by their sums, empty rows left alone."""
    return x / x.sum(dim=1, keepdim=True).clamp(min=1e-12)


def train_model(
    model: GCN,
    data: Data,
    recipe: Recipe,
    *,
    initial: Mapping[str, Tensor] | None = None,
    teacher: Tensor | None = None,
    on_epoch: Callable[[], None] = lambda: None,
) -> TrainedModel:
    """Train on the training nodes of one graph, choose by the loss of the validation nodes.

    Args:
        model: the model; trained in place.
        data: graph with features, labels and masks, as the loaders of ``bitgnn.data`` give it.
        recipe: epochs, learning rate and the like.
        initial: state to start from.
        teacher: ``[N, C]`` logits to distill from where ``recipe.distill`` is not 0.
        on_epoch: called after each epoch.

    Returns:
        The model's state at the lowest validation loss and its accuracies there.
    """
    if initial is not None:
        model.load_state_dict(initial)
    x = row_normalized(data.x) if recipe.normalize_features else data.x
    optimizer = torch.optim.Adam(
        model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
    )
    scheduler = None
    if recipe.schedule == "cosine":
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=recipe.epochs)
    best: TrainedModel | None = None
    for epoch in range(recipe.epochs):
        model.train()
        optimizer.zero_grad()
        logits = model(x, data.edge_index)
        loss = functional.cross_entropy(logits[data.train_mask], data.y[data.train_mask])
        if teacher is not None and recipe.distill > 0:
            loss = loss + recipe.distill * _divergence(logits, teacher, recipe.temperature)
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        best = _better(best, model, x, data, epoch)
        on_epoch()
    assert best is not None  # epochs is at least 1
    model.load_state_dict(best.state)
    model.eval()
    return best


def _divergence(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """``T^2 KL(softmax(teacher / T) || softmax(logits / T))``, mean over nodes (Hinton 2015)."""
    divergence = functional.kl_div(
        functional.log_softmax(logits / temperature, dim=-1),
        functional.log_softmax(teacher / temperature, dim=-1),
        reduction="batchmean",
        log_target=True,
    )
    return temperature**2 * divergence


@torch.no_grad()
def _better(
    best: TrainedModel | None, model: GCN, x: Tensor, data: Data, epoch: int
) -> TrainedModel:
    """``best``, or the present state if its validation loss is lower."""
    model.eval()
    logits = model(x, data.edge_index)
    val_loss = functional.cross_entropy(logits[data.val_mask], data.y[data.val_mask]).item()
    if best is not None and not val_loss < best.val_loss:
        return best
    right = (logits.argmax(dim=-1) == data.y).float()
    return TrainedModel(
        {name: tensor.detach().clone() for name, tensor in model.state_dict().items()},
        right[data.test_mask].mean().item(),
        right[data.val_mask].mean().item(),
        val_loss,
        epoch,
    )
