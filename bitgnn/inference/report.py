"""What freezing made of a model: boundaries of its layers, and what stayed in floats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["FreezeReport"]


@dataclass(frozen=True)
class FreezeReport:
    """What crosses each layer's boundaries, and what could not be bits.

    Attributes:
        letters: operator letters of each layer by module name, as frozen.
        boundaries: by module name, what the layer hands on.
        floats: by module or function, why a value in front of a sign, or a part of a binary
            layer, stayed in full precision.
        folded: by module, with which other layers its float linear map was composed, or how it
            changed places with an aggregation; those layers have no float results of their own.
        orders: what comes first, ``"transform_first"`` or ``"aggregate_first"``, in each layer
            whose float maps of features and graph may change places.
    """

    letters: Mapping[str, str] = field(default_factory=dict)
    boundaries: Mapping[str, str] = field(default_factory=dict)
    floats: Mapping[str, str] = field(default_factory=dict)
    folded: Mapping[str, str] = field(default_factory=dict)
    orders: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [
            f"{name}: {letters}, hands on {self.boundaries.get(name, 'floats')}"
            for name, letters in self.letters.items()
        ]
        lines += [f"{name}: full precision, {reason}" for name, reason in self.floats.items()]
        lines += [f"{name}: {what}" for name, what in self.folded.items()]
        return "\n".join(lines)

    def description(self) -> dict[str, dict[str, str]]:
        """Plain values that :meth:`from_description` reads."""
        return {name: dict(value) for name, value in asdict(self).items()}

    @classmethod
    def from_description(cls, description: Any) -> FreezeReport:
        """Read a report.

        Raises:
            ValueError: an entry is missing or no mapping of strings.
        """
        names = {"letters", "boundaries", "floats"}
        # Reports of earlier versions know of nothing folded or ordered.
        later = {"folded", "orders"}
        if not isinstance(description, dict) or description.keys() - later != names:
            raise ValueError(f"a report must have the entries {sorted(names)}")
        for part in description.values():
            if not isinstance(part, dict) or not all(
                isinstance(text, str) for item in part.items() for text in item
            ):
                raise ValueError("the entries of a report must map strings to strings")
        return cls(**description)
