"""Short fine-tuning of a model in the letters of a plan, before its accuracy counts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn
from torch_geometric.utils import to_torch_csr_tensor

from bitgnn.convert.letters import with_letters
from bitgnn.train.loop import TrainingError, train_model
from bitgnn.train.randomness import seeded
from bitgnn.train.recipe import Loader, Recipe
from bitgnn.train.task import NodeTask
from bitgnn.tune.accuracy import Score, logits_of, score_logits
from bitgnn.tune.chains import layer_rules
from bitgnn.tune.workload import Workload

__all__ = ["SHORT", "FineTuned", "fine_tune", "node_task"]

SHORT = Recipe(epochs=100, learning_rate=0.005, schedule="cosine", choose_by="score", distill=1.0)
"""Enough for a model of Cora's size to adapt, in seconds."""


@dataclass(frozen=True)
class FineTuned:
    """Result of a fine-tuning.

    Attributes:
        model: the copy in the plan's letters, to be frozen with the plan; in evaluation.
        score: its scores.
        before: scores in front of the first epoch; the better state of the two is kept.
        epochs: epochs trained.
    """

    model: nn.Module
    score: Score
    before: Score
    epochs: int


def fine_tune(
    workload: Workload,
    letters: Mapping[str, str],
    *,
    recipe: Recipe = SHORT,
    seed: int = 0,
    loader: Loader | None = None,
    on_epochs: Callable[[int], None] = lambda count: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> FineTuned:
    """Train a copy of a workload's model in other letters.

    The model as it was given is the teacher where ``recipe.distill`` is not 0. The same seed gives
    the same result on a CPU. Random generators are left as they were.

    Args:
        workload: model and data with a training mask.
        letters: by layer name.
        recipe: epochs, learning rate and the like; its options of layers do not matter, the model
            has its own.
        seed: of torch, numpy and Python.
        loader: what a step sees; None is the whole graph.
        on_epochs: called with the number of epochs done since the last call.
        should_stop: asked in front of every epoch; true ends with the best state so far.

    Returns:
        The model at its best validation score.

    Raises:
        ValueError: there is no training mask, or the model cannot have these letters.
        LoaderError: a loader's library is missing.
    """
    if not workload.is_trainable:
        raise ValueError(
            "tune: data has no training mask (train_mask), which fine-tuning needs; "
            "tune without it or split the nodes first"
        )
    with seeded(seed, workload.device):
        task = node_task(workload)
        logits = partial(logits_of, x=task.x, graph=task.evaluation_graph)

        def scored(model: nn.Module) -> Score:
            return score_logits(workload, logits(model))

        model = with_letters(workload.model, letters, _norms(workload.model, letters))
        before = scored(model)
        if should_stop():
            return FineTuned(model.eval(), before, before, 0)
        initial = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        teachers = [logits(workload.model)] if recipe.distill > 0 else []
        try:
            trained = train_model(
                model,
                task,
                recipe,
                loader=loader,
                teachers=teachers,
                on_epochs=on_epochs,
                should_stop=should_stop,
            )
            epochs = trained.epochs
            score = scored(model)
        except TrainingError:  # diverged: what there was before is still there
            epochs, score = recipe.epochs, before
        if not score.validation > before.validation:
            model.load_state_dict(initial)
            score = before
        return FineTuned(model.eval(), score, before, epochs)


def _norms(model: nn.Module, letters: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Batch norms in front of the signs between products, which frozen models have for nothing."""
    rules = layer_rules(model)
    signed = {
        source
        for rule in rules
        if rule.between == "nothing" and letters[rule.name][:3] != "FFF"
        for source in rule.sources
    }
    found: dict[str, dict[str, Any]] = {}
    for rule in rules:
        text, norms = letters[rule.name], {}
        if rule.is_graph and text[2] == "B":
            norms["hidden_norm"] = "batch"
        if text[:3] != "FFF" and (text[-1] == "B" or rule.name in signed):
            norms["output_norm"] = "batch"
        found[rule.name] = norms
    return found


def node_task(workload: Workload) -> NodeTask:
    """A workload as trainings take it.

    Args:
        workload: with a training mask.
    """
    assert workload.train_mask is not None, "who trains checks it"
    test = workload.val_mask if workload.test_mask is None else workload.test_mask
    masks = (workload.train_mask, workload.val_mask, test)
    train, val = (mask.nonzero().flatten() for mask in masks[:2])
    graph = workload.edge_index
    if workload.edge_weight is not None:
        # Rows are destinations; layers read the values as weights.
        size = (workload.num_nodes, workload.num_nodes)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse", category=UserWarning)
            graph = to_torch_csr_tensor(graph.flip(0), workload.edge_weight, size)
    return NodeTask(workload.x, graph, workload.y, train, val, workload.metric_of(*masks), graph)
