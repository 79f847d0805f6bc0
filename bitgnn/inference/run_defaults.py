"""What a frozen model takes where a call leaves layout, method or executor open."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, get_args

from bitgnn.bits.layouts import FRDC_METHODS
from bitgnn.inference.layout import GraphLayout

__all__ = ["EXECUTOR_NAMES", "RunDefaults"]

EXECUTOR_NAMES = ("auto", "eager", "cuda_graph", "cooperative")


@dataclass(frozen=True)
class RunDefaults:
    """Layout, method and executor of a plan.

    Attributes:
        layout: of :meth:`bitgnn.inference.FrozenModel.prepare_graph`.
        method: of the same; for ``layout="frdc"`` only.
        executor: of :meth:`bitgnn.inference.FrozenModel.executor`.
    """

    layout: str = "auto"
    method: str | None = None
    executor: str = "auto"

    def check(self, who: str) -> None:
        """Refuse values that do not exist or do not go together.

        Args:
            who: begins the message.

        Raises:
            ValueError: naming the entry, what it was and what it must be.
        """
        check_layout(who, self.layout, self.method)
        if self.executor not in EXECUTOR_NAMES:
            raise ValueError(
                f"{who}: executor must be one of {list(EXECUTOR_NAMES)}, got {self.executor!r}"
            )

    def description(self) -> dict[str, Any]:
        """Plain values that :meth:`from_description` reads."""
        return asdict(self)

    @classmethod
    def from_description(cls, description: Any) -> RunDefaults:
        """Read what :meth:`description` gave.

        Raises:
            ValueError: an entry is missing, left over or has no such value.
        """
        names = [entry.name for entry in fields(cls)]
        if not isinstance(description, dict) or sorted(description) != sorted(names):
            raise ValueError(f"defaults must have the entries {names}, got {description}")
        found = cls(**description)
        found.check("defaults")
        return found


def check_layout(who: str, layout: Any, method: Any) -> None:
    """Refuse a layout that does not exist, or a method that is not one of its.

    Raises:
        ValueError: naming the argument, what it was and what it must be.
    """
    layouts = get_args(GraphLayout)
    if layout not in layouts:
        raise ValueError(f"{who}: layout must be one of {list(layouts)}, got {layout!r}")
    if method is None:
        return
    if method not in FRDC_METHODS:
        raise ValueError(
            f"{who}: method must be None or one of {list(FRDC_METHODS)}, got {method!r}"
        )
    if layout != "frdc":
        raise ValueError(f"{who}: method {method!r} is one of layout 'frdc', got layout {layout!r}")
