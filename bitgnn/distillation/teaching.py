"""distill(): from a float model and its data to a binary model, in one call."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.data.data import BaseData
from torch_geometric.nn import GAE
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from bitgnn._files import FolderInUseError, locked, write_atomically
from bitgnn._interpreter import warn
from bitgnn.convert import Plan
from bitgnn.convert.configs import BWTAConfig, GraphConfig, ImageConfig
from bitgnn.distillation import ranks
from bitgnn.distillation.batches import Batched
from bitgnn.distillation.calling import DistillError, Inputs, is_dataset, tensors_of
from bitgnn.distillation.checkpoint import seeded
from bitgnn.distillation.fitting import Ask, fit
from bitgnn.distillation.graphs_and_links import Graphs, LinkPairs, has_links
from bitgnn.distillation.inside import Inside, watched
from bitgnn.distillation.kinds import batched_problem
from bitgnn.distillation.problems import Nodes, Problem
from bitgnn.distillation.recipe import (
    DistillRecipe,
    asking,
    dropout_for,
    judged,
    recipe_for,
    results_of,
    standing,
)
from bitgnn.distillation.result import Distilled, gap_between
from bitgnn.distillation.session import Fit
from bitgnn.distillation.stages import Stage, run_stages, stages_of
from bitgnn.distillation.students import binary_student, described, fresh, widened
from bitgnn.inference import Frozen
from bitgnn.measure.memory import dense_parts

JUDGEMENT = "judgement.txt"
TEACHER_SHARE = 1 / 3
"""Part of a budget for a teacher that is not trained yet."""
LOOKED_AT = 1_000_000
"""Entries of a tensor that tell it from another one."""
NUMBER = int | float | None
TYPES: Mapping[str, tuple[Any, str]] = {
    "widen": (NUMBER | nn.Module, "a number, a model or None"),
    "budget": (NUMBER, "seconds or None"),
    "seed": (int, "an int"),
    "trained": (bool | None, "a bool or None"),
    "log": (str | PathLike | None, "a path or None"),
    "recipe": (Mapping | None, "a mapping of fields or None"),
}
MOST_SEED = 2**32 - 1


def distill(
    model: nn.Module,
    data: BaseData | Sequence[BaseData] | Iterable[Any],
    precision: str | Plan | GraphConfig | ImageConfig | BWTAConfig = "bin",
    *,
    widen: float | nn.Module | None = None,
    loader: Iterable[BaseData] | None = None,
    epochs: int | None = None,
    budget: float | None = None,
    seed: int = 0,
    validation: Any = None,
    log: str | Path | None = None,
    trained: bool | None = None,
    recipe: Mapping[str, Any] | None = None,
) -> Distilled:
    r"""A binary model that is taught by ``model``, ready for :func:`bitgnn.freeze`.

    In three lines::

        result = bitgnn.distill(model, data)
        print(result)                       # scores of both, the gap and its standard error
        frozen = bitgnn.freeze(result.model)

    The labels say what is learnt. Nodes of one graph: int64 ``y`` are classes, floats of 0 and 1
    in several columns labels of their own, other floats values. A sequence of graphs with ``y``
    each: the same for graphs. A graph with ``edge_label_index`` (or ``pos_edge_label_index``):
    links, scored by the model's ``decode`` or the inner product of its results. A loader or
    dataset of pairs ``(images, labels)``: images. One of mappings with ``labels``: texts; where
    these are the tokens of ``input_ids`` (or -100), texts of a causal language model, whose score
    is minus its perplexity.

    A student starts from fresh weights and learns

    .. math:: (1 - w)\, L_\mathrm{labels} + w\, \mathrm{KL}(q \,\|\, p), \quad
        q \propto p_\mathrm{teacher}^2

    on all nodes by Adam with a cosine schedule; the state with the best validation score stays. For
    nodes, w is the share of them without a training label, at least 0.3, and as much of the model's
    dropout is left as the teacher overfits; for graphs, links and texts w is 0.5.
    Where validation nodes say that it helps, the teacher's class probabilities are smoothed over
    the graph first, with the training labels in them (see
    :class:`~bitgnn.distillation.objectives.Smoothing`). A model whose score and loss on the
    validation rows are no better than those of constant scores, or hardly better than those
    of copies with fresh weights, counts as untrained: a copy is trained on the labels and teaches.

    A student of images or texts starts from the teacher's weights and becomes binary in stages, see
    :func:`~bitgnn.distillation.stages.stages_of`.

    In a group of ``torch.distributed`` with several ranks all of them call it with equal arguments.
    Each takes its share of the loader's samples (nodes or graphs), equally many and dealt anew in
    each epoch; gradients are means over the ranks, the scores decide on all of them together, and
    ``log`` is a folder that all see, from which any number of ranks goes on.

    Args:
        model: any model with layers that :func:`bitgnn.binarize` swaps; unchanged. Its device is
            where all happens.
        data: graph, or a sequence of graphs; of images or texts a ``DataLoader``, another iterable
            of batches, or a dataset of samples.
        precision: ``"bin"``, ``"full"``, letters, a configuration, or a :class:`~bitgnn.Plan`, in
            whose letters the layers of ``"bin"`` learn; ``"bin"`` is a
            :class:`~bitgnn.ImageConfig` for images, a :class:`~bitgnn.BWTAConfig` for texts.
        widen: the student has this many times the hidden channels; or a model of your own, wider
            or deeper, whose weights are made anew. ``result.costs()`` tells time and bytes next to
            those of the same width.
        loader: batches of the training data, such as ``bitgnn.data.NeighborLoader``; None is the
            whole graph, or batches of 64 graphs.
        epochs: of the training; None is 200 for whole graphs, about 2 000 steps of batches.
        budget: seconds for all training; the learning rate falls to 0 in that time.
        seed: of all random numbers; those outside are left as they were.
        validation: mask or indices of nodes, further graphs, images or texts or a loader of them, a
            graph with pairs, or the share of training labels to hold out; None is ``val_mask``,
            else a fifth of the training labels with a warning.
        log: folder for checkpoints, the log of epochs, and whether ``model`` counts as trained. A
            call with the same arguments goes on where it was stopped.
        trained: whether ``model`` is trained; None looks at its scores, see above.
        recipe: fields of the student's :class:`~bitgnn.distillation.DistillRecipe` to set by hand,
            for studies; the rule for all data is the default.

    Returns:
        The result; Ctrl-C in the last stage of the student's training ends it early and gives the
        best epoch so far. In the teacher's training it is raised where there is a log, since the
        same call goes on.

    Raises:
        DistillError: something about model or data that nothing can be learnt with; the message
            names it, before anything is trained. Or ``budget`` leaves the student no time.
        CheckpointError: ``log`` holds a training of something else.
        FolderInUseError: another process trains in ``log``.
        TypeError: ``model`` or another argument is of a wrong type.
    """
    if isinstance(model, Frozen):
        raise TypeError("distill: model is frozen already; pass the float model")
    _check_model(model)
    _check_options(
        widen=widen, epochs=epochs, budget=budget, seed=seed, trained=trained, log=log,
        recipe=recipe,
    )  # fmt: skip
    if not any(parameter.requires_grad for parameter in model.parameters()):
        model = copy.deepcopy(model).requires_grad_(True)  # a frozen teacher: students learn
    device = next(model.parameters()).device
    with ExitStack() as held:
        folder = None if log is None else Path(log)
        if folder is not None and ranks.rank() == 0:
            _claim(folder, held)
        held.enter_context(seeded(seed, device))
        problem = _problem(model, data, loader, validation, seed)
        of_teacher, of_student = recipe_for(problem, epochs)
        of_student = _changed(of_student, recipe or {})
        if ranks.count() > 1:
            ranks.split(problem, seed)  # the recipe is that of all batches in one process
        source = model if widen is None else widen
        if widen is None and problem.keeps_weights:
            plain = model
        elif isinstance(source, nn.Module):
            plain = fresh(source)
        else:
            plain = widened(model, problem.example, source)
        student = binary_student(plain, precision, problem)
        same_width = None
        if isinstance(widen, int | float) and widen > 1:
            same_width = binary_student(fresh(model), precision, problem)

        start = _fingerprint(model, problem.example)
        teacher = copy.deepcopy(model).eval()
        _inside(problem, teacher, student, of_student)  # its errors, before anything is trained
        teacher_fit = None
        found = standing(problem, teacher)
        remaining = budget
        judgement = f"{'trained' if trained else 'untrained'}, as trained= says"
        if trained is None:
            with seeded(seed, device):
                trained, judgement = judged(problem, model, found)
        trained = bool(ranks.largest(float(trained), device))
        if folder is not None and ranks.rank() == 0:
            write_atomically(folder / JUDGEMENT, f"{judgement}\n".encode())
        if not trained:
            identity: dict[str, Any] = {"part": "teacher", "seed": seed, "of": start}
            teacher_fit = Fit(teacher, of_teacher, identity)
            share = None if budget is None else TEACHER_SHARE * budget
            stopped = fit(teacher_fit, problem, None, budget=share, folder=folder, title="teacher")
            if stopped and folder is not None:
                raise KeyboardInterrupt
            found = standing(problem, teacher)
            if budget is not None:
                remaining = budget - teacher_fit.seconds
                if remaining <= 0:
                    raise DistillError(
                        f"budget must leave time for the student, got {budget:g} seconds, all of "
                        f"which the teacher's {teacher_fit.epoch} epochs took"
                    )
            if plain is model:
                student = binary_student(teacher, precision, problem)
        overfit = problem.overfit(teacher)
        if overfit is not None and "dropout" not in (recipe or {}):
            of_student = of_student.model_copy(update={"dropout": dropout_for(*overfit)})
        ask: Ask
        ask, smoothing = asking(problem, teacher, of_student)
        if not found.score > found.chance:
            warn(
                f"distill: the teacher is at chance, {problem.objective.metric} "
                f"{found.score:.4f} on validation rows; the student learns from the labels alone"
            )
            ask = None
        identity = {
            "part": "student", "seed": seed, "of": start, "teacher": found.score,
            "precision": described(precision, problem),
            "widen": widen if isinstance(widen, int | float) else None,
        }  # fmt: skip
        stages = [Stage("student", of_student)]
        if isinstance(problem, Batched):
            stages = stages_of(student, of_student, problem)
        inside = None if ask is None else _inside(problem, teacher, student, of_student)
        if ask is not None and inside is not None:
            ask = watched(ask, inside)
        taught = run_stages(
            student, stages, problem, ask, identity,
            budget=remaining, folder=folder, inside=inside,
        )  # fmt: skip
        ended = {} if teacher_fit is None else {"teacher": teacher_fit.ended}
        scores = [results_of(problem, one) for one in (teacher, student)]
        of_one, of_other, gap, error = gap_between(problem.objective, *scores)
        return Distilled(
            student, teacher, problem.objective.metric, of_other, of_one, gap, error, judgement,
            smoothing, taught.history,
            teacher_history=[] if teacher_fit is None else teacher_fit.rows(),
            seconds=taught.seconds,
            teacher_seconds=0.0 if teacher_fit is None else teacher_fit.seconds,
            interrupted=taught.interrupted, ended={**ended, **taught.ended},
            example=problem.example, same_width=same_width,
        )  # fmt: skip


def _check_model(model: Any) -> None:
    """Refuse what cannot be trained."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"distill: model must be a torch.nn.Module, got {type(model).__name__}")
    parameters = dict(model.named_parameters())
    if not parameters:
        raise DistillError(f"model must have parameters, {type(model).__name__} has none")
    devices = sorted({str(value.device) for value in parameters.values()})
    if len(devices) > 1 or devices == ["meta"]:
        raise DistillError(f"model must be on one device with its data, got {', '.join(devices)}")
    for name, value in parameters.items():
        if not is_uninitialized_parameter(value) and not bool(torch.isfinite(value).all()):
            raise DistillError(f"model must have finite weights, found NaN or infinity in {name}")


def _check_options(**options: Any) -> None:
    """Refuse options of a wrong type or out of range."""
    for name, (kinds, said) in TYPES.items():
        value = options[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and name != "trained"):
            raise TypeError(f"distill: {name} must be {said}, got {type(value).__name__}")
    widen, epochs, budget, seed = (options[n] for n in ("widen", "epochs", "budget", "seed"))
    if isinstance(widen, int | float) and not 1 <= widen < float("inf"):
        raise ValueError(f"distill: widen must be at least 1, got {widen}")
    if epochs is not None and (type(epochs) is not int or epochs < 1):
        raise ValueError(f"distill: epochs must be a positive integer or None, got {epochs!r}")
    if budget is not None and not budget > 0:
        raise ValueError(f"distill: budget must be positive seconds or None, got {budget!r}")
    if not 0 <= seed <= MOST_SEED:
        raise ValueError(f"distill: seed must be 0 to {MOST_SEED}, got {seed}")


def _changed(recipe: DistillRecipe, fields: Mapping[str, Any]) -> DistillRecipe:
    """The recipe with the user's own fields."""
    try:
        return DistillRecipe(**{**recipe.model_dump(), **fields})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise DistillError(f"recipe: {name}: {first['msg']}, got {fields[name]!r}") from error


def _inside(
    problem: Problem, teacher: nn.Module, student: nn.Module, recipe: DistillRecipe
) -> Inside | None:
    """Losses between states of both; None where the recipe has none."""
    if not (recipe.hidden_weight or recipe.attention_weight):
        return None
    if not isinstance(problem, Batched):
        raise DistillError("recipe: hidden_weight and attention_weight must be 0 for graphs")
    return Inside(teacher, student, problem.example, recipe)


def _claim(folder: Path, held: ExitStack) -> None:
    if folder.exists() and not folder.is_dir():
        raise DistillError(f"log must be a folder, {folder} is none")
    folder.mkdir(parents=True, exist_ok=True)
    if not held.enter_context(locked(folder)):
        raise FolderInUseError(f"{folder}: another process trains here; choose another log")


def _problem(model: nn.Module, data: Any, loader: Any, validation: Any, seed: int) -> Problem:
    """The problem that data and model pose."""
    if isinstance(data, BaseData) and not isinstance(data, Data):
        raise DistillError(f"data must be homogeneous, got {type(data).__name__}")
    if isinstance(data, Data) and (has_links(data) or isinstance(model, GAE)):
        if loader is not None:
            raise DistillError("loader must be None for links, whose pairs are drawn anew, got one")
        return LinkPairs(data, model, validation, seed)
    if isinstance(data, Data):
        if validation is not None and not isinstance(validation, Tensor | float):
            raise DistillError(
                "validation must be a mask, indices or a share for nodes, got "
                f"{type(validation).__name__}"
            )
        return Nodes(data, model, loader, validation, seed)
    batched = batched_problem(data, model, loader, validation, seed)
    if batched is not None:
        return batched
    if is_dataset(data) and not isinstance(data, str):
        return Graphs(data, model, loader, validation, seed)
    raise DistillError(
        "data must be a Data object, a sequence of them, or a loader or dataset of images or "
        f"texts, got {type(data).__name__}; pass batches as loader="
    )


def _fingerprint(model: nn.Module, example: Inputs) -> str:
    """Fingerprint of weights and data, which identifies a training."""
    found = hashlib.sha256()
    tensors = {**model.state_dict(), **tensors_of(example)}
    for name, value in tensors.items():
        if not isinstance(value, Tensor) or is_uninitialized_parameter(value):
            continue
        found.update(f"{name} {list(value.shape)} {value.dtype}".encode())
        for part in dense_parts(value.detach()):
            every = max(1, part.numel() // LOOKED_AT)
            some = part.flatten()[::every].cpu().contiguous()
            found.update(some.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]
