"""The trained model's own code beside a frozen program: its methods, other ways of its forward."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from bitgnn.inference.bound_program import BoundProgram

if TYPE_CHECKING:
    from typing_extensions import Self


class WithOwnForm(BoundProgram):
    """Base of programs that may keep the code they were traced from, with packed layers in it.

    That form is no submodule: it is not part of the state, of ``nbytes`` or of a file.
    """

    _own: tuple[nn.Module, ...] = ()
    _own_methods: frozenset[str] = frozenset()

    def keep_own_form(self, own: nn.Module, methods: Collection[str]) -> None:
        """Take the own code of the trained model, and the names of its methods."""
        self._own, self._own_methods = (own,), frozenset(methods)

    @property
    def own_form(self) -> nn.Module | None:
        """The own code of the trained model; None where the program is all there is of it."""
        return self._own[0] if self._own else None

    def __getattr__(self, name: str) -> Any:
        """Methods of the trained model, on its packed layers."""
        if name in self.__dict__.get("_own_methods", ()):
            return getattr(self._own[0], name)
        return super().__getattr__(name)

    def _run_own_form(self, *args: Any, **kwargs: Any) -> Any:
        given = list(args)
        while given and given[-1] is None:  # what a call left out
            given.pop()
        return self._own[0](*given, **kwargs)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        for own in self._own:
            own._apply(fn, recurse)
        return self
