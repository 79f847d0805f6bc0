"""Layouts and orders derived from a pattern, kept until it is written to or replaced."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from bitgnn.bits.edges import Edges
from bitgnn.bits.layouts import (
    INT32_MAX,
    FrdcLayout,
    SlicedLayout,
    build_frdc,
    build_row_order,
    build_sliced,
    default_slice_size,
    row_indices,
)
from bitgnn.bits.patterns import pattern_of
from bitgnn.bits.tensor_version import Watch, counted


class Derived:
    """Base of :class:`~bitgnn.BitAdjacency`: what is derived from its pattern on first use."""

    rowptr: Tensor
    indices: Tensor
    num_cols: int
    values: Tensor | None
    value_bits: int | None

    @property
    def shape(self) -> tuple[int, int]:
        """``(M, N)``: destinations, sources."""
        return self.rowptr.size(0) - 1, self.num_cols

    @property
    def nnz(self) -> int:
        """Number of edges, duplicates counted."""
        return self.indices.size(0)

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.indices.device

    def _begin(self) -> None:
        """Nothing is derived yet."""
        self._derived: dict[Hashable, Any] = {}
        self._watch: Watch | None = None
        self._planned: set[int] = set()

    @property
    def derived_nbytes(self) -> int:
        """Bytes of the derived layouts and the order of the rows, as far as built."""
        total = 0
        for held in self._derived.values():
            parts = held if isinstance(held, tuple) else (held,)
            total += sum(part.nbytes for part in parts if part is not None)
            if isinstance(held, SlicedLayout):
                total -= self.rowptr.nbytes  # shared with the pattern
        return total

    def plan_slices(self, words: int) -> None:
        """Build slices now, over which frozen models aggregate rows of ``words`` words."""
        self.sliced()
        self._planned.add(words)

    def reads_slices(self, words: int) -> bool:
        """True if slices are planned for rows of ``words`` words.

        Compiled and exported programs take CSR: they see only the pattern and its factors.
        """
        return words in self._planned and not torch.compiler.is_compiling()

    def frdc(self) -> FrdcLayout | None:
        """The FRDC layout, kept after the first call; None where an edge occurs twice."""
        found: FrdcLayout | None = self._kept(
            "frdc", lambda: build_frdc(self.rowptr, self.indices, self.num_cols)
        )
        return found

    def sliced(self, max_slice_size: int | None = None) -> SlicedLayout:
        """The sliced layout, kept for each slice size after the first call.

        Args:
            max_slice_size: columns of a slice at most; None for as many as the device's shared
                memory holds.

        Raises:
            ValueError: ``max_slice_size`` lies outside [1, 65535].
        """
        size = default_slice_size(self.device) if max_slice_size is None else max_slice_size
        found: SlicedLayout = self._kept(
            ("sliced", size), lambda: build_sliced(self.rowptr, self.indices, self.num_cols, size)
        )
        return found

    def has_sliced(self) -> bool:
        """True if the sliced layout of the device's own size has been built."""
        return self._fits() and ("sliced", default_slice_size(self.device)) in self._derived

    def transposed(self) -> tuple[Tensor, Tensor]:
        """Row pointer ``[N + 1]`` and int32 ``[E]`` indices of the transposed pattern, kept."""
        if torch.compiler.is_compiling():
            from bitgnn.bits._outside_graphs import transposed

            return transposed(self)
        return self._kept_transposed()

    def row_order(self) -> Tensor | None:
        """The rows by descending ``degree // 32``, kept after the first call.

        A CUDA graph captured by hand goes on reading the order that was found before its capture.

        Returns:
            Int64 ``[M, 2]``: the first edge of each row, and ``degree + row * 2**32``. None from
            2**31 edges on, while a compiler looks, and where it is not there yet while a CUDA
            stream is captured, whose results cannot be kept.
        """
        if torch.compiler.is_compiling() or self.nnz > INT32_MAX:
            return None
        if self.indices.is_cuda and torch.cuda.is_current_stream_capturing():
            return self._derived.get("order") if self._fits() else None
        found: Tensor = self._kept("order", lambda: build_row_order(self.rowptr))
        return found

    def _kept_transposed(self) -> tuple[Tensor, Tensor]:
        def build() -> tuple[Tensor, Tensor]:
            rows, columns = row_indices(self.rowptr), self.indices.long()
            rowptr, indices = pattern_of(Edges(columns, rows, None, self.num_cols, self.shape[0]))
            return rowptr.to(self.rowptr.dtype), indices

        found: tuple[Tensor, Tensor] = self._kept("transposed", build)
        return found

    def transposed_order(self) -> Tensor:
        """Int64 ``[E]``: the entry of each entry of :meth:`transposed`, kept."""
        found: Tensor = self._kept(
            "transposed order", lambda: torch.argsort(self.indices, stable=True)
        )
        return found

    def _kept(self, key: Hashable, build: Callable[[], Any]) -> Any:
        """A derived layout, built on first use and anew once the pattern has changed."""
        if not self._fits():
            self.rowptr, self.indices = counted(self.rowptr), counted(self.indices)
            self._derived, self._watch = {}, Watch(self._sources)
        if key not in self._derived:
            self._derived[key] = build()
        return self._derived[key]

    def _fits(self) -> bool:
        """True if the layouts come from these very tensors, unchanged since.

        A compiler sees neither versions nor addresses; while it looks, nothing is written.
        """
        watch = self._watch
        if watch is None:
            return False
        return torch.compiler.is_compiling() or watch.unchanged(self._sources)

    @property
    def _sources(self) -> tuple[Tensor | None, ...]:
        """The tensors that layouts come from."""
        return self.rowptr, self.indices, None if self.value_bits is None else self.values
