"""What a teacher asks of a student beside or in place of its probabilities, for studies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from hooks import students
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

from bitgnn.distillation import teaching
from bitgnn.distillation.objectives import Classes

__all__ = ["correlations", "embeddings", "local_structure", "logits", "softened", "with_hidden"]

LEAST = 1e-9


def _divergence(logs: Tensor, wanted: Tensor) -> Tensor:
    return functional.kl_div(logs, wanted, reduction="batchmean", log_target=True)


@contextmanager
def _asked(wanted: Callable[..., Tensor], loss: Callable[..., Tensor]) -> Iterator[None]:
    """Let teachers ask for ``wanted(scores)``, and students lose ``loss(scores, wanted)``."""
    with (
        patch.object(Classes, "wanted", lambda _, scores, sharpen: wanted(scores)),
        patch.object(Classes, "teacher", lambda _, scores, asked: loss(scores, asked)),
    ):
        yield


def logits() -> Any:
    """Mean squared difference of scores, each row around its mean.

    (Ba and Caruana, "Do Deep Nets Really Need to be Deep?", NeurIPS 2014.)
    """

    def centred(scores: Tensor) -> Tensor:
        return scores.float() - scores.float().mean(1, keepdim=True)

    return _asked(centred, lambda scores, asked: functional.mse_loss(centred(scores), asked))


def softened(temperature: float) -> Any:
    """``T^2 KL`` of both models' probabilities at temperature T.

    (Hinton et al., "Distilling the Knowledge in a Neural Network", 2015.)
    """

    def logs(scores: Tensor) -> Tensor:
        return functional.log_softmax(scores.float() / temperature, 1)

    return _asked(logs, lambda scores, asked: temperature**2 * _divergence(logs(scores), asked))


def correlations() -> Any:
    """DIST: one minus the correlation of probabilities, of each node and of each class.

    (Huang et al., "Knowledge Distillation from a Stronger Teacher", NeurIPS 2022.)
    """

    def distance(a: Tensor, b: Tensor) -> Tensor:
        a, b = (t - t.mean(1, keepdim=True) for t in (a, b))
        return 1 - functional.cosine_similarity(a, b, eps=LEAST).mean()

    def loss(scores: Tensor, asked: Tensor) -> Tensor:
        p = functional.softmax(scores, 1)
        return distance(p, asked) + distance(p.t(), asked.t())

    return _asked(lambda scores: functional.softmax(scores.float(), 1), loss)


@contextmanager
def with_hidden(loss: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Iterator[None]:
    """Add ``loss(student's hidden, teacher's hidden, edges)``, of what the first layer gives."""
    held: dict[str, Tensor] = {}
    handles: list[Any] = []

    def listen(who: str, model: nn.Module) -> Any:
        first = next(m for m in model.modules() if isinstance(m, MessagePassing))
        return first.register_forward_hook(lambda *call: held.__setitem__(who, call[2]))

    def asking(problem: Any, teacher: nn.Module, recipe: Any) -> Any:
        handle = listen("teacher", teacher)
        held["edges"] = problem.graph.edge_index
        found = ask(problem, teacher, recipe)
        handle.remove()
        return found

    def with_more(objective: Classes, scores: Tensor, wanted: Tensor) -> Tensor:
        added = loss(held["student"], held["teacher"].detach(), held["edges"])
        return plain(objective, scores, wanted) + added

    ask, plain = teaching.asking, Classes.teacher
    try:
        with (
            students(lambda student, _: handles.append(listen("student", student))),
            patch.object(teaching, "asking", asking),
            patch.object(Classes, "teacher", with_more),
        ):
            yield
    finally:
        for handle in handles:
            handle.remove()


def _units(x: Tensor) -> Tensor:
    return functional.normalize(x - x.mean(0))


def embeddings(student: Tensor, teacher: Tensor, _: Tensor) -> Tensor:
    """Squared distance of hidden rows, centred and of unit length, mean over nodes.

    (Romero et al., "FitNets: Hints for Thin Deep Nets", ICLR 2015; both have as many channels.)
    """
    return (_units(student) - _units(teacher)).square().sum(1).mean()


def local_structure(student: Tensor, teacher: Tensor, edges: Tensor) -> Tensor:
    """LSP: divergence of the shares that a node's neighbours have by their distances, mean of all.

    (Yang et al., "Distilling Knowledge from Graph Convolutional Networks", CVPR 2020.)
    """

    def shares(x: Tensor) -> Tensor:
        rows = _units(x)
        distances = (rows[edges[0]] - rows[edges[1]]).square().sum(1)
        return softmax(-distances, edges[1], num_nodes=x.size(0)).clamp(min=LEAST)

    p, q = shares(teacher), shares(student)
    return (p * (p / q).log()).sum() / student.size(0)
