"""Students before they learn: fresh weights, and the binary form that a precision asks for."""

from __future__ import annotations

import copy
import inspect
import json
from typing import Any

from torch import nn
from torch_geometric.nn import GAE

from bitgnn.convert import Plan, binarize
from bitgnn.convert.configs import Config, GraphConfig
from bitgnn.convert.example import run_example
from bitgnn.convert.swap.graphs import with_letters
from bitgnn.distillation.batched import Batched
from bitgnn.distillation.calling import arguments_of
from bitgnn.distillation.errors import DistillError
from bitgnn.distillation.problems import Problem
from bitgnn.distillation.widening import reset_weights

__all__ = ["binary_student", "described", "fresh"]


def fresh(model: nn.Module) -> nn.Module:
    """A copy whose layers start anew."""
    result = copy.deepcopy(model)
    reset_weights(result)
    return result


def binary_student(model: nn.Module, precision: Any, problem: Problem) -> nn.Module:
    """The binary form of a model, its layers settled on the data.

    Args:
        model: unchanged.
        precision: as of :func:`bitgnn.distill`; a plan changes the letters of the ``"bin"`` form.
        problem: the data.

    Raises:
        DistillError: the model has no such form.
    """
    try:
        if isinstance(precision, Plan):
            result = with_letters(binary_student(model, "bin", problem), precision.letters)
            if not isinstance(problem, Batched) and not isinstance(model, GAE):
                run_example(result, _example(model, problem))
            return result
        if isinstance(problem, Batched):
            return problem.binary(model, precision)
        if isinstance(precision, Config) and not isinstance(precision, GraphConfig):
            raise DistillError(
                f"precision must be a GraphConfig for graphs, got {type(precision).__name__}"
            )
        if isinstance(model, GAE):
            result = binarize(model, precision)
            result.encoder = _settled(model.encoder, precision, problem)
            return result
        return _settled(model, precision, problem)
    except ValueError as error:
        if isinstance(error, DistillError):
            raise
        raise DistillError(str(error)) from error


def _settled(model: nn.Module, precision: Any, problem: Problem) -> nn.Module:
    return binarize(model, precision, example=_example(model, problem))


def _example(model: nn.Module, problem: Problem) -> Any:
    """What the forward takes, as :func:`bitgnn.binarize` wants it."""
    args, named = arguments_of(model, problem.example)
    if not named:
        return tuple(args)
    names = list(inspect.signature(model.forward).parameters)
    return {**dict(zip(names, args, strict=False)), **named}


def described(precision: Any, problem: Problem) -> str:
    """A precision as a checkpoint records it."""
    if isinstance(precision, Plan):
        return json.dumps(dict(precision.letters), sort_keys=True)
    return problem.described(precision) if isinstance(problem, Batched) else str(precision)
