"""Frozen: what all frozen models have in common, whatever they compute."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from bitgnn.inference.report import FreezeReport
from bitgnn.inference.shared_tensors import each_once

if TYPE_CHECKING:
    from typing_extensions import Self

    from bitgnn.inference.layout import GraphLayout
    from bitgnn.inference.measured_memory import MemoryReport

__all__ = ["Frozen", "OwnForward"]


class Frozen(nn.Module):
    """Base of frozen models, which :func:`bitgnn.freeze` and :func:`bitgnn.load` make.

    Each is called as the trained model was, stays in evaluation, has no parameters to train and
    records no gradients; what it returns may feed a head that is trained. It moves between devices
    with ``to`` and keeps the types of whatever decides bits.

    Attributes:
        kind: name of its form in checkpoints.
        report: what freezing did.
    """

    kind: str
    report: FreezeReport

    def train(self, mode: bool = True) -> Self:
        """Nothing: a frozen model stays in evaluation."""
        return super().train(False)

    def __prepare_scriptable__(self) -> Any:
        """Refuses ``torch.jit.script``, whose own message names an annotation."""
        raise RuntimeError(
            f"{type(self).__name__}: TorchScript does not compile frozen models; use torch.export "
            "or torch.compile with a prepared graph"
        )

    @property
    def letters(self) -> tuple[str, ...]:
        """Operator letters of each packed layer, in order."""
        return tuple(self.report.letters.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors; what several names share counts once."""
        return sum(tensor.nbytes for tensor in each_once(self.state_dict())[0].values())

    def executor(self, name: str = "auto", **options: Any) -> Callable[..., Any]:
        """A way to run this model again and again, called as the model itself.

        Results are the same, bit for bit.

        Args:
            name: ``"auto"``, a CUDA graph for each shape of inputs on a GPU and eager elsewhere;
                ``"eager"``, one operator after the other; ``"cuda_graph"``, all of them as one
                launch, captured for each shape, dtype and memory format. What runs the user's own
                forward is run eagerly.
            options: of the executor, see :mod:`bitgnn.inference`.

        Raises:
            TypeError: the executor has no such option, or is not for models of this type.
            ValueError: there is no such executor, or the model is not for it.
        """
        # Executors build on this file.
        from bitgnn.inference.executors import make_executor

        return make_executor(self, name, **options)

    def memory(
        self,
        data: Any,
        *,
        edge_weight: Tensor | None = None,
        features: Literal["floats", "packed"] | None = None,
        layout: GraphLayout = "auto",
    ) -> MemoryReport:
        """Bytes that a forward on ``data`` needs; see :func:`bitgnn.inference.memory_report`."""
        from bitgnn.inference.measured_memory import memory_report

        return memory_report(self, data, edge_weight=edge_weight, features=features, layout=layout)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model into a folder; see :func:`bitgnn.save`."""
        from bitgnn.inference.checkpoint import save

        return save(self, path)  # type: ignore[arg-type]

    def description(self) -> dict[str, Any]:
        """Everything but the tensors, as plain values: what a checkpoint's JSON holds."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """Packed layers and bytes."""
        return f"packed_layers={len(self.letters)}, nbytes={self.nbytes}"


class OwnForward(Frozen):
    """Base of frozen models that run the user's own forward with packed layers in it.

    Args:
        model: with packed layers.
        report: what freezing did.

    Attributes:
        model: the model itself, whose further methods (such as ``generate``) and attributes are
            those of the frozen one as well, the methods without gradients.
    """

    def __init__(self, model: nn.Module, report: FreezeReport) -> None:
        super().__init__()
        self.model = model
        self.report = report
        self.requires_grad_(False)
        self.eval()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model returns, without gradients."""
        if torch.compiler.is_compiling():
            return self.model(*args, **kwargs)
        with torch.no_grad():
            return self.model(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Methods and attributes of the model, the methods without gradients."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__") or name == "model":
                raise
        found = getattr(self.model, name)
        if not callable(found) or isinstance(found, nn.Module | type):
            return found
        return torch.no_grad()(found)

    def saved_tensors(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Tensors by name, each once, and the names that share another's."""
        return each_once(self.model.state_dict())
