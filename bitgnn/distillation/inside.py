"""Distillation of intermediate states and attention probabilities, as BWTA has it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.distillation.calling import DistillError, Inputs, tried
from bitgnn.distillation.recipe import DistillRecipe

HEADS = 1
"""Dimension of attention probabilities ``[B, H, N, L]``."""
LEAST = 1e-12
States = dict[str, Tensor]


def hidden_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean squared error of states ``[B, *]``, float32."""
    return functional.mse_loss(student.float(), teacher.float())


def attention_loss(student: Tensor, teacher: Tensor) -> Tensor:
    r"""Distance of attention maps of probabilities ``[B, H, N, L]``, mean over texts.

    :math:`\lVert Q_S / \lVert Q_S \rVert - Q_T / \lVert Q_T \rVert \rVert` with
    :math:`Q = \sum_h P_h^2`, norms over all pairs of tokens of a text.

    Source: Martinez et al., "Training Binary Neural Networks with Real-to-Binary Convolutions",
    ICLR 2020.
    """
    maps = (p.float().square().sum(HEADS).flatten(1) for p in (student, teacher))
    ours, theirs = (functional.normalize(q, dim=1, eps=LEAST) for q in maps)
    return (ours - theirs).norm(dim=1).mean()


class Inside:
    """Losses between the inside of a student and of its teacher in one step.

    Intermediate states are the results of blocks, the modules in a ``ModuleList``, and of their
    direct parts, such as attention and feed-forward networks, where both models have them in one
    shape. Attention probabilities are those of transformers' ``output_attentions``.

    Raises:
        DistillError: the models have nothing in common that a weight of the recipe asks for.
    """

    def __init__(
        self, teacher: nn.Module, student: nn.Module, example: Inputs, recipe: DistillRecipe
    ) -> None:
        self.teacher, self.student = teacher, student
        self.weights = {"hidden": recipe.hidden_weight, "attention": recipe.attention_weight}
        self._seen: dict[nn.Module, States] = {}
        for model in (teacher, student):
            with self.watching(model):
                tried(model, example)
        if recipe.hidden_weight and not self._pairs("hidden"):
            raise DistillError(
                "recipe: hidden_weight must be 0 for a model without blocks in a ModuleList, got "
                f"{recipe.hidden_weight:g} for {type(teacher).__name__}"
            )
        if recipe.attention_weight and not self._pairs("attention"):
            raise DistillError(
                "recipe: attention_weight must be 0 for a model that gives no attentions, got "
                f"{recipe.attention_weight:g} for {type(teacher).__name__}; those of transformers "
                'do with attn_implementation="eager"'
            )

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        """Keep the states of the model's next call, in the place of those of the last one."""
        seen: States = {}
        self._seen[model] = seen
        handles: list[Any] = []
        if self.weights["hidden"]:
            handles += [part.register_forward_hook(_keeper(seen, n)) for n, part in _parts(model)]
        if self.weights["attention"] and _takes_attentions(model):
            handles.append(model.register_forward_pre_hook(_with_attentions, with_kwargs=True))
            handles.append(model.register_forward_hook(_keeper(seen, None)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def loss(self) -> Tensor:
        """The weighted mean losses of the last calls of both; their states are let go."""
        total = torch.zeros(())
        for kind, loss in (("hidden", hidden_loss), ("attention", attention_loss)):
            found = [loss(*pair) for pair in self._pairs(kind)]
            if found:
                total = total.to(found[0].device) + self.weights[kind] * torch.stack(found).mean()
        self._seen.clear()
        return total

    def _pairs(self, kind: str) -> list[tuple[Tensor, Tensor]]:
        """States of the student and the teacher that both have, in one shape."""
        ours, theirs = (self._seen.get(model, {}) for model in (self.student, self.teacher))
        return [
            (state, theirs[name])
            for name, state in ours.items()
            if name.startswith(kind) and name in theirs and theirs[name].shape == state.shape
        ]


def watched(ask: Callable[[Any], Tensor], inside: Inside) -> Callable[[Any], Tensor]:
    """``ask`` with the teacher's states kept for the loss."""

    def asked(part: Any) -> Tensor:
        with inside.watching(inside.teacher):
            return ask(part)

    return asked


def _parts(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Blocks and their direct parts, by name."""
    blocks = [
        (f"{name}.{number}", block)
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList)
        for number, block in module.named_children()
    ]
    inner = [(f"{name}.{n}", part) for name, block in blocks for n, part in block.named_children()]
    return blocks + inner


def _keeper(seen: States, name: str | None) -> Any:
    """A hook that keeps a state of a name, or all attentions of a result."""

    def keep(module: nn.Module, given: Any, result: Any) -> None:
        if name is None:
            for number, value in enumerate(getattr(result, "attentions", None) or ()):
                if isinstance(value, Tensor):
                    seen[f"attention.{number}"] = value
            return
        result = result[0] if isinstance(result, tuple) and result else result
        if isinstance(result, Tensor) and result.is_floating_point() and not result.is_nested:
            seen[f"hidden.{name}"] = result

    return keep


def _takes_attentions(model: nn.Module) -> bool:
    parameters = inspect.signature(model.forward).parameters.values()
    return any(p.name == "output_attentions" or p.kind == p.VAR_KEYWORD for p in parameters)


def _with_attentions(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
    return args, {**kwargs, "output_attentions": True}
