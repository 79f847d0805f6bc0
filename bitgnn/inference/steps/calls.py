"""Steps that call a module or function in full precision, as the user's own forward does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bitgnn.inference.program import Apply, Register, Step, StepCheck, StepKind, Tensors

EDGE_INDEX = "edge_index"
EDGE_WEIGHT = "edge_weight"
RESULTS = "results"
"""Name of the step that joins what a forward returns where that is more than one tensor."""


class Input:
    """Place of a value among the arguments of a call.

    Args:
        place: number of the step's input, or the name of a part of the graph.
    """

    def __init__(self, place: int | str) -> None:
        self.place = place


class Method:
    """A method of a tensor, to be called as a function."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        return getattr(value, self.__name__)(*args, **kwargs)


def results(value: Any) -> Any:
    """What the forward returns, a structure of several tensors."""
    return value


class FloatCall(nn.Module):
    """A module or function with its arguments.

    Args:
        name: for messages.
        function: what is called; its buffers and parameters move with the frozen model.
        args: positional arguments with :class:`Input` in place of values.
        kwargs: keyword arguments likewise.
        size: width of the result, or None where it is not known.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        size: int | None,
    ) -> None:
        super().__init__()
        self.name = name
        self.function = function
        self.leaves, self.structure = pytree.tree_flatten((args, dict(kwargs)))
        for number, leaf in enumerate(self.leaves):
            if isinstance(leaf, Tensor):  # a constant of the user's forward
                self.register_buffer(f"constant_{number}", leaf.detach())
                self.leaves[number] = None
        self.size = size

    @property
    def parts(self) -> set[str]:
        """Names of what it reads besides values: parts of the graph and further inputs."""
        found: set[str] = set()

        def visit(leaf: Any) -> None:
            if isinstance(leaf, Input) and isinstance(leaf.place, str):
                found.add(leaf.place)
            elif isinstance(leaf, slice):
                for part in (leaf.start, leaf.stop, leaf.step):
                    visit(part)

        for leaf in self.leaves:
            visit(leaf)
        return found

    def forward(self, values: Sequence[Any], graph: Any) -> Any:
        """Call with the given values of the inputs."""
        leaves = list(self.leaves)

        def filled(leaf: Any) -> Any:
            if isinstance(leaf, Input):
                place = leaf.place
                return values[place] if isinstance(place, int) else graph.part(place)
            if isinstance(leaf, slice):
                return slice(filled(leaf.start), filled(leaf.stop), filled(leaf.step))
            return leaf

        for number, leaf in enumerate(leaves):
            if isinstance(leaf, Input | slice):
                leaves[number] = filled(leaf)
            elif f"constant_{number}" in self._buffers:
                leaves[number] = self._buffers[f"constant_{number}"]
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        return self.function(*args, **kwargs)


def call_kind(calls: Sequence[FloatCall]) -> StepKind:
    """The kind of step that runs one of ``calls``."""

    def check(check: StepCheck) -> tuple[Register, ...]:
        number = check.has(call=int)["call"]
        check.reads(*[("floats", None)] * len(check.registers))
        return (Register("floats", calls[number].size),)

    def make(step: Step, tensors: Tensors) -> Apply:
        call, count = calls[step.attributes["call"]], len(step.inputs)
        return lambda *given: call(given[:count], *given[count:] or (None,))

    return StepKind("call", check, make)
