"""Variants of binary students beyond a recipe's fields: what each kind of study tries, by name.

Each variant is a context in which :func:`bitgnn.distill` makes or trains its student in another
way. None of it is part of the package; what it gives is frozen and run like any other student.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import losses
import surrogates
import torch
from hooks import after_steps, latent_weights, students
from plain_loop import HIDDEN, Tutorial
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.distillation import teaching
from bitgnn.distillation.problems import Nodes
from bitgnn.nn import looked_up_products, looks_up

__all__ = ["VARIANTS", "Variant"]

Variant = Callable[[], AbstractContextManager[Any]]
SPARED = {"latent": 1, "gains": 2}
"""Dimensions of the parameters that weight decay spares where it reaches the others."""


def drawn(draw: Callable[[Tensor], Any]) -> AbstractContextManager[None]:
    """Latent weights drawn, or changed, by a function in place of N(0, 1 / in)."""
    return students(lambda student, _: [draw(weight) for weight in latent_weights(student)])


@contextmanager
def of_teacher(like_fresh: bool = False) -> Iterator[None]:
    """Latent weights that start as the trained teacher's, or those in the size of fresh ones.

    Of thermometers, whose weights are more than the teacher's, the first layer starts anew.
    """
    scaled = drawn(_as_fresh) if like_fresh else nullcontext()
    with patch.object(Nodes, "keeps_weights", True), scaled:
        yield


def _as_fresh(weight: Tensor) -> None:
    weight.mul_(1 / (weight.square().mean().sqrt() * math.sqrt(weight.size(1))))


@contextmanager
def formed(hidden: Mapping[str, Any], last: Mapping[str, Any]) -> Iterator[None]:
    """Other fields of the forms that hidden and last layers of "bin" and "full" have."""
    forms = looks_up.named_forms

    def changed(precision: Any) -> Any:
        found = forms(precision)
        if found is None:
            return None
        return {
            name: replace(form, **(last if name == "last" else hidden))
            for name, form in found.items()
        }

    with patch.object(looks_up, "named_forms", changed):
        yield


@contextmanager
def standardised() -> Iterator[None]:
    """Latent weights of mean 0 and deviation 1 for each output, without a clip.

    (Qiao et al., "Weight Standardization", 2019; with the sign, IR-Net's Libra, CVPR 2020.)
    """

    def change(weight: Tensor, *_: Any) -> None:
        std, mean = torch.std_mean(weight, 1, keepdim=True)
        weight.sub_(mean).div_(std.clamp(min=surrogates.LEAST))

    with after_steps(change), surrogates.sloped(None, surrogates.identity):
        yield


def centred(weight: Tensor, *_: Any) -> None:
    """As many signs of each kind, for the most information (IR-Net, CVPR 2020)."""
    weight.sub_(weight.mean(1, keepdim=True))


def revived(weight: Tensor, _: Tensor, progress: float) -> None:
    """Outer weights, which never flip again, clamped to the quantile t, from 0.85 to 0.99.

    (Xu et al., "ReCU: Reviving the Dead Weights in Binary Neural Networks", ICCV 2021.)
    """
    t = 0.85 + 0.14 * progress
    low, high = (weight.flatten().kthvalue(_rank(weight, share))[0] for share in (1 - t, t))
    weight.clamp_(low, high)


def _rank(weight: Tensor, share: float) -> int:
    return 1 + round(share * (weight.numel() - 1))


def paced(factor: Callable[[Tensor], float]) -> AbstractContextManager[None]:
    """Steps of latent weights multiplied by a factor of each layer."""

    def change(weight: Tensor, before: Tensor, _: float) -> None:
        weight.copy_(torch.lerp(before, weight, factor(weight)))

    return after_steps(change)


def glorot(weight: Tensor) -> float:
    """One tenth of ``sqrt((in + out) / 1.5)``, for large layers small weights in equal steps.

    (Courbariaux et al., "BinaryConnect", NeurIPS 2015, whose rate is a tenth of the recipe's.)
    """
    return 0.1 * math.sqrt(sum(weight.shape) / 1.5)


@contextmanager
def decaying(what: str) -> Iterator[None]:
    """Weight decay that reaches latent weights, or gains, too: ``weight_decay`` says how much."""
    spare, spared = looked_up_products.spare_from_decay, SPARED[what]

    def some(parameter: Tensor) -> None:
        if parameter.dim() == spared:
            spare(parameter)

    with patch.object(looked_up_products, "spare_from_decay", some):
        yield


@contextmanager
def flips(pace: float = 0.05, threshold: float = 0.3) -> Iterator[None]:
    """No latent weights: a sign flips where the mean gradient has it and is above its deviations.

    (Helwegen et al., "Latent Weights Do Not Exist", NeurIPS 2019; the threshold over the root of
    the second moment is of Suarez-Ramirez et al., "A Bop and Beyond", CVPR workshops 2021.)
    """
    moments: dict[nn.Parameter, tuple[Tensor, Tensor]] = {}

    def change(weight: nn.Parameter, before: Tensor, _: float) -> None:
        if weight.grad is None:
            return
        first, second = moments.setdefault(
            weight, (torch.zeros_like(before), torch.zeros_like(before))
        )
        first.lerp_(weight.grad, pace)
        second.lerp_(weight.grad.square(), pace)
        strong = first.abs() > threshold * second.sqrt() + surrogates.LEAST
        weight.copy_(torch.where(strong & (first.sign() == before.sign()), -before, before))

    with after_steps(change):
        yield


@contextmanager
def behind(precision: str) -> Iterator[None]:
    """Half of the epochs in another precision, whose weights and norms the student takes over.

    From more levels to fewer (Zhuang et al., "Towards Effective Low-bitwidth Convolutional Neural
    Networks", CVPR 2018). Parameters of another shape start anew.
    """
    run, floats = teaching.run_stages, {}

    def staged(student: nn.Module, stages: Any, problem: Any, *rest: Any, **named: Any) -> Any:
        (stage,) = stages
        first = stage.recipe.epochs // 2
        halves = [
            replace(stage, title=title, recipe=stage.recipe.model_copy(update={"epochs": epochs}))
            for title, epochs in ((precision, first), (stage.title, stage.recipe.epochs - first))
        ]
        early = make(floats[student], precision, problem)
        before = run(early, halves[:1], problem, *rest, **named)
        _take_over(student, early)
        taught = run(student, halves[1:], problem, *rest, **named)
        return replace(
            taught, history=before.history + taught.history, seconds=before.seconds + taught.seconds
        )

    make = teaching.binary_student
    with (
        students(floats.__setitem__),
        patch.object(teaching, "run_stages", staged),
    ):
        yield


def _take_over(student: nn.Module, early: nn.Module) -> None:
    found = dict(early.named_parameters())
    with torch.no_grad():
        for name, parameter in student.named_parameters():
            if name in found and found[name].shape == parameter.shape:
                parameter.copy_(found[name])


class Deeper(Tutorial):
    """The tutorial's model with norms between layers, or with residual connections."""

    def __init__(
        self, layer: str, sizes: list[int], norm: Callable[[int], nn.Module], residual: bool
    ) -> None:
        super().__init__(layer, sizes)
        self.norms = nn.ModuleList(norm(size) for size in sizes[1:-1])
        self.residual = residual

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Scores of every node."""
        last = len(self.convs) - 1
        for number, conv in enumerate(self.convs):
            x = functional.dropout(x, training=self.training)
            out = conv(x, edge_index)
            if number < last:
                out = functional.relu(self.norms[number](out))
            x = x + out if self.residual and 0 < number < last else out
        return x


def rebuilt(
    layers: int = 2, wide: int = 1, norm: Callable[[int], nn.Module] = nn.Identity,
    residual: bool = False,
) -> AbstractContextManager[Any]:  # fmt: skip
    """A student of other layers than its teacher's."""

    def made(model: Tutorial) -> nn.Module:
        first, last = model.convs[0], model.convs[-1]
        sizes = [first.in_channels, *[wide * HIDDEN] * (layers - 1), last.out_channels]
        student = Deeper(type(first).__name__, sizes, norm, residual)
        return student.to(next(model.parameters()).device)

    return patch.object(teaching, "fresh", made)


VARIANTS: Mapping[str, Mapping[str, Variant]] = {
    "surrogate": {
        "narrow": surrogates.narrow_window,
        "identity": partial(surrogates.sloped, surrogates.identity, surrogates.identity),
        "bireal": partial(surrogates.sloped, surrogates.polynomial),
        "swish": partial(surrogates.sloped, surrogates.bell),
        "ede": partial(surrogates.sloped, surrogates.annealed_tanh),
        "ede-weights": partial(
            surrogates.sloped, surrogates.annealed_tanh, surrogates.annealed_tanh
        ),
        "reste": partial(surrogates.sloped, surrogates.power),
        "reste-weights": partial(surrogates.sloped, surrogates.power, surrogates.power),
        "fourier": partial(surrogates.sloped, surrogates.fourier),
    },
    "init": {
        "xavier": partial(drawn, nn.init.xavier_uniform_),
        "kaiming": partial(drawn, nn.init.kaiming_uniform_),
        "orthogonal": partial(drawn, nn.init.orthogonal_),
        "tenth": partial(drawn, lambda weight: weight.mul_(0.1)),
        "tenfold": partial(drawn, lambda weight: weight.mul_(10)),
        "teacher": of_teacher,
        "teacher-scaled": partial(of_teacher, like_fresh=True),
    },
    "norm": {
        "none": partial(formed, {"hidden_norm": None}, {}),
        "output": partial(formed, {"output_norm": "batch"}, {}),
        "batch-between": partial(rebuilt, norm=nn.BatchNorm1d),
        "layer-between": partial(rebuilt, norm=nn.LayerNorm),
        "centred-weights": partial(after_steps, centred),
        "standardised-weights": standardised,
        "recu": partial(after_steps, revived),
    },
    "arithmetic": {
        "products-first": partial(formed, {}, {"order": "transform_first"}),
    },
    "rate": {
        "tenth": partial(paced, lambda _: 0.1),
        "third": partial(paced, lambda _: 0.3),
        "triple": partial(paced, lambda _: 3.0),
        "glorot": partial(paced, glorot),
        "flips": flips,
    },
    "decay": {"latent": partial(decaying, "latent"), "gains": partial(decaying, "gains")},
    "loss": {
        "logits": losses.logits,
        "temperature-2": partial(losses.softened, 2.0),
        "temperature-4": partial(losses.softened, 4.0),
        "correlations": losses.correlations,
        "embeddings": partial(losses.with_hidden, losses.embeddings),
        "local-structure": partial(losses.with_hidden, losses.local_structure),
    },
    "stages": {
        "full": partial(behind, "full"),
        "ternary": partial(behind, "TBF+TBF"),
        "float-weights": partial(surrogates.soft_weights, surrogates.unit_weights),
        "sharper-tanh": partial(surrogates.soft_weights, surrogates.sharper_tanh),
    },
    "depth": {
        "3": partial(rebuilt, layers=3),
        "3-residual": partial(rebuilt, layers=3, residual=True),
        "3-residual-wide": partial(rebuilt, layers=3, wide=4, residual=True),
    },
}
"""Variants by kind and name."""
