"""The rows of a summary, printed as a table."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

TABLE_WIDTH = 140
MICRO = 1e6


@dataclass(frozen=True)
class LayerSummary:
    """One layer.

    Attributes:
        name: module name in the trained model.
        letters: operator letters; empty for what is no binary layer.
        activation_bits: of what the dense product reads, as frozen; None without a product.
        weight_bits: of the weights in the product.
        aggregation_bits: of what the aggregation reads; None without one.
        output_bits: of what the layer hands on.
        float_bytes: the weights in float32.
        packed_bytes: everything the frozen layer keeps.
        one_bit_share: part of the operations that are on bits, or None where there are none.
        measured_seconds: median time of the layer alone in the given model, if inputs were given.
    """

    name: str
    letters: str
    activation_bits: int | None
    weight_bits: int | None
    aggregation_bits: int | None
    output_bits: int
    float_bytes: int
    packed_bytes: int
    one_bit_share: float | None
    measured_seconds: float | None


@dataclass(frozen=True)
class Summary:
    """The layers of a model and their sums; prints as a table.

    Attributes:
        title: class of the model.
        layers: in the order they run.
        one_bit_share: part of all operations that are on bits.
        notes: what the table cannot say.
    """

    title: str
    layers: tuple[LayerSummary, ...]
    one_bit_share: float | None
    notes: tuple[str, ...]

    @property
    def float_bytes(self) -> int:
        """The weights of all layers in float32."""
        return sum(layer.float_bytes for layer in self.layers)

    @property
    def packed_bytes(self) -> int:
        """Everything the frozen model keeps."""
        return sum(layer.packed_bytes for layer in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; times in seconds."""
        return {
            **asdict(self),
            "layers": [asdict(layer) for layer in self.layers],
            "float_bytes": self.float_bytes,
            "packed_bytes": self.packed_bytes,
        }

    def __rich__(self) -> Table:
        heads = ["layer", "letters", "activation", "weight", "aggregation", "output"]
        heads += ["float bytes", "packed bytes", "1-bit ops"]
        times = [layer.measured_seconds for layer in self.layers]
        if any(seconds is not None for seconds in times):
            heads.append("measured µs")
        table = Table(title=self.title, caption="\n".join(self.notes))
        for number, head in enumerate(heads):
            table.add_column(head, justify="right" if number > 1 else "left")
        for layer in self.layers:
            bits = (
                layer.activation_bits,
                layer.weight_bits,
                layer.aggregation_bits,
                layer.output_bits,
            )
            texts = [layer.name, layer.letters, *("" if b is None else f"{b} bit" for b in bits)]
            table.add_row(*_cells(texts, layer, layer.measured_seconds)[: len(heads)])
        table.add_section()
        whole = sum(filter(None, times))
        table.add_row(*_cells(["whole", *[""] * 5], self, whole)[: len(heads)])
        return table

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=TABLE_WIDTH, color_system=None)
        console.print(self)
        text: str = console.file.getvalue()  # type: ignore[attr-defined]
        return text


def _cells(texts: list[str], part: LayerSummary | Summary, seconds: float | None) -> list[str]:
    share = "" if part.one_bit_share is None else f"{100 * part.one_bit_share:.1f} %"
    micro = "" if seconds is None else f"{MICRO * seconds:.1f}"
    return [*texts, f"{part.float_bytes:,}", f"{part.packed_bytes:,}", share, micro]
