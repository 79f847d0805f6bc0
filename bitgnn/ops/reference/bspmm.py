"""Reference of the binary sparse products BSpMM.xyz, their orders of sums and their layouts.

Letters are activation, adjacency, output. On bits ``s = 2 * count - degree`` is the sum of the
+-1 values of a row's neighbours; an empty row gives 0, hence bit 1.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from bitgnn.ops.reference.pack import (
    binarise,
    check_csr,
    decide,
    dense_entries,
    from_words,
    signs,
    to_words,
)
from bitgnn.ops.reference.table import CSR, SLICES, Arguments, changed, operator
from bitgnn.ops.reference.ternary import ternary_values

SUM_SLOTS = 8
"""Partial sums of a piece: slot ``s`` takes edges ``s, s + 8, s + 16, ...`` in that order."""
SUM_PIECE = 128
"""Edges of a piece; the pieces of a row are added up from the first to the last."""

_TILES = "tile_rowptr:_ tile_cols:T tiles:T num_rows:int"
_TO_BITS = "row?:P-1 threshold?:size trusted=False -> bits:P-1,size"
_TO_VALUES = "row?:P-1 bias?:size integer=False trusted=False -> value:P-1,size"


def check_edges(a: Arguments, num_cols: int) -> None:
    """Check as :func:`~bitgnn.ops.reference.pack.check_csr`, unless the pattern is trusted."""
    if not a.trusted:
        check_csr(a.rowptr, a.indices, num_cols)


def row_sums(
    rowptr: Tensor, width: int, dtype: torch.dtype, term: Callable[[Tensor], Tensor]
) -> Tensor:
    """Add ``term(edges)`` ``[len(edges), width]`` up for each row, strictly in edge order.

    Step ``p`` adds the p-th edge of every row that has one, so the order is that of a plain loop
    over the row's edges while the work stays vectorised over rows.
    """
    starts, degree = rowptr[:-1].long(), rowptr.diff()
    total = torch.zeros(len(starts), width, dtype=dtype, device=rowptr.device)
    active = torch.arange(len(starts), device=rowptr.device)
    for position in range(int(degree.max()) if len(starts) else 0):
        active = active[degree[active] > position]
        total[active] = total[active] + term(starts[active] + position)
    return total


def canonical_sums(
    rowptr: Tensor, width: int, factor: Callable[[Tensor], Tensor], value: Callable[..., Tensor]
) -> Tensor:
    """Float32 ``[M, width]``: sums of ``factor(edges) * value(edges)`` in the canonical order.

    Edge ``p`` of a piece goes to slot ``p % 8`` by a fused multiply-add; the slots are folded as
    ``s[:4] + s[4:]``, then ``s[:2] + s[2:]``, then ``s[0] + s[1]``; pieces follow one another.
    """
    starts, ends, device = rowptr[:-1].long(), rowptr[1:].long(), rowptr.device
    pieces = -((starts - ends) // SUM_PIECE)
    row_of = torch.arange(len(starts), device=device).repeat_interleave(pieces)
    before = pieces.cumsum(0) - pieces
    number = torch.arange(len(row_of), device=device) - before[row_of]
    begins, ends = starts[row_of] + SUM_PIECE * number, ends[row_of]
    slots = torch.zeros(len(row_of), SUM_SLOTS, width, dtype=torch.float32, device=device)
    for position in range(min(SUM_PIECE, int((ends - begins).max()) if len(row_of) else 0)):
        taking = torch.nonzero(begins + position < ends).squeeze(1)
        edges, slot = begins[taking] + position, position % SUM_SLOTS
        # Exact in float64 but for the last rounding: a fused multiply-add.
        product = factor(edges).double().unsqueeze(1) * value(edges).double()
        slots[taking, slot] = (slots[taking, slot].double() + product).float()
    count = SUM_SLOTS
    while count > 1:
        count //= 2
        slots = slots[:, :count] + slots[:, count:]
    total = torch.zeros(len(starts), width, dtype=torch.float32, device=device)
    for piece in range(int(pieces.max()) if len(pieces) else 0):
        active = torch.nonzero(pieces > piece).squeeze(1)
        total[active] = total[active] + slots[before[active] + piece, 0]
    return total


def _sums(a: Arguments, values: Tensor) -> Tensor:
    """Sums of the neighbours' rows of ``values`` in their dtype, in edge order."""
    width = values.size(1)
    return row_sums(a.rowptr, width, values.dtype, lambda e: values[a.indices[e].long()])


def _scaled_rows(value: Tensor, row: Tensor | None) -> Tensor:
    value = value.to(torch.float32)
    return value if row is None else row.unsqueeze(1) * value


def _with_bias(value: Tensor, bias: Tensor | None) -> Tensor:
    return value if bias is None else value + bias


def _words(a: Arguments, sums: Tensor) -> Tensor:
    return to_words(decide(_scaled_rows(sums, a.row), a.threshold))


def _values(a: Arguments, sums: Tensor) -> Tensor:
    if not a.integer:
        return _with_bias(_scaled_rows(sums, a.row), a.bias)
    if a.row is not None or a.bias is not None:
        raise ValueError("integer=True leaves no room for row factors or a bias")
    return sums


def _sign_sums(a: Arguments) -> Tensor:
    check_edges(a, a.x.size(0))
    return _sums(a, from_words(a.x, a.size).to(torch.int32) * 2 - 1)


@operator(f"x:N,W(size) size:int {CSR} {_TO_BITS}")
def bspmm_bbb(a: Arguments) -> Tensor:
    """Words x ``[N, W]`` aggregated to words ``[M, W]``: bit of ``row * s >= threshold``."""
    return _words(a, _sign_sums(a))


@operator(f"x:N,W(size) size:int {CSR} {_TO_VALUES}")
def bspmm_bbf(a: Arguments) -> Tensor:
    """Words x aggregated to float32 ``row * s + bias``, or to int32 ``s`` with ``integer``."""
    return _values(a, _sign_sums(a))


@operator(
    "x:N,W(size) size:int rowptr:P indices:E@pointers values:E@packable entry_threshold?:N "
    "threshold?:size -> bits:P-1,size",
    on_host=True,
)
def bspmm_entries(a: Arguments) -> Tensor:
    """Words x ``[N, W]`` aggregated over the entries of a sparse matrix ``[M, N]``, to ``[M, W]``.

    As :func:`bspmm_bbb` over the pattern of columns whose entries add up to ``entry_threshold`` (0
    without one) or more: in float32, those of float64 in float64. Unlike those of a pattern, row
    pointer and columns are int32 or int64, and columns may have any order or occur twice.

    Raises:
        ValueError: ``rowptr`` does not ascend from 0 to the number of entries, or a column lies
            outside.
    """
    sums, has_entry = dense_entries(a.rowptr, a.indices, a.values, a.x.size(0))
    reached = binarise(sums, a.entry_threshold) & has_entry
    # Float64 holds such sums exactly, and GPUs have no product of integers.
    counts = (reached.double() @ (from_words(a.x, a.size).double() * 2 - 1)).long()
    return to_words(decide(counts, a.threshold))


def _ternary_sums(a: Arguments) -> Tensor:
    check_edges(a, a.x.size(0))
    return _sums(a, ternary_values(a.x, a.size).to(torch.int32))


@operator(f"x:_,2,W(size) size:int {CSR} {_TO_BITS}")
def bspmm_tbb(a: Arguments) -> Tensor:
    """Ternary x ``[N, 2, W]`` aggregated to words ``[M, W]``: bit of ``row * s >= threshold``."""
    return _words(a, _ternary_sums(a))


@operator(f"x:_,2,W(size) size:int {CSR} {_TO_VALUES}")
def bspmm_tbf(a: Arguments) -> Tensor:
    """Ternary x aggregated to float32 ``row * s + bias``, or to int32 ``s`` with ``integer``."""
    return _values(a, _ternary_sums(a))


def _dense_sums(a: Arguments) -> Tensor:
    """Sums of (weighted) rows of x: float32 in edge order, or exact int32 for integer x."""
    check_edges(a, a.x.size(0))
    if not a.x.is_floating_point():
        if a.col is not None:
            raise ValueError("integer x has exact sums and leaves no room for col")
        return _sums(a, a.x.to(torch.int32))
    values = a.x.to(torch.float32)
    return _sums(a, values if a.col is None else a.col.unsqueeze(1) * values)


@operator(
    f"x:N,K@summable {CSR} row?:P-1 col?:N bias?:K integer=False trusted=False -> value:P-1,K"
)
def bspmm_fbf(a: Arguments) -> Tensor:
    """Dense x ``[N, K]``: ``row[i] * sum_j(col[j] * x[j]) + bias``, float32 in edge order.

    int8 and int16 x (without ``col``) have exact sums, which ``integer`` returns as int32.
    """
    if a.integer and a.x.is_floating_point():
        raise ValueError(f"integer=True needs x to be int8 or int16, got {a.x.dtype}")
    return _values(a, _dense_sums(a))


@operator(f"x:N,K@summable {CSR} row?:P-1 col?:N threshold?:K trusted=False -> bits:P-1,K")
def bspmm_fbb(a: Arguments) -> Tensor:
    """Words of ``bspmm_fbf(...) >= threshold``, without bias."""
    return _words(a, _dense_sums(a))


def _weighted_sums(a: Arguments, weights: Tensor, source: Tensor) -> Tensor:
    """Float32 sums of ``weights[e] * source[j]`` in edge order."""
    check_edges(a, source.size(0))

    def term(edges: Tensor) -> Tensor:
        return weights[edges].unsqueeze(1) * source[a.indices[edges].long()]

    return row_sums(a.rowptr, source.size(1), torch.float32, term)


def _weighted_signs(a: Arguments) -> Tensor:
    weights = a.values.to(torch.float32)
    if a.x_scale is not None:
        weights = weights * a.x_scale[a.indices.long()]
    return _weighted_sums(a, weights, signs(a.x, a.size))


_WEIGHTED_BITS = f"x:N,W(size) size:int {CSR} values:E x_scale?:N"


@operator(f"{_WEIGHTED_BITS} bias?:size trusted=False -> floats:P-1,size")
def bspmm_bff(a: Arguments) -> Tensor:
    """Words x, float adjacency: sum of ``+-(values[e] * x_scale[j])`` plus bias, float32."""
    return _with_bias(_weighted_signs(a), a.bias)


@operator(f"{_WEIGHTED_BITS} threshold?:size trusted=False -> bits:P-1,size")
def bspmm_bfb(a: Arguments) -> Tensor:
    """Words of ``bspmm_bff(...) >= threshold``."""
    return to_words(decide(_weighted_signs(a), a.threshold))


def _weighted_floats(a: Arguments) -> Tensor:
    return _weighted_sums(a, a.values.to(torch.float32), a.x.to(torch.float32))


@operator(f"x:N,K@floats {CSR} values:E bias?:K trusted=False -> floats:P-1,K")
def bspmm_fff(a: Arguments) -> Tensor:
    """Float x, float adjacency: sum of ``values[e] * x[j]`` in edge order plus bias, float32."""
    return _with_bias(_weighted_floats(a), a.bias)


@operator(f"x:N,K@floats {CSR} values:E threshold?:K trusted=False -> bits:P-1,K")
def bspmm_ffb(a: Arguments) -> Tensor:
    """Words of ``bspmm_fff(...) >= threshold``."""
    return to_words(decide(_weighted_floats(a), a.threshold))


@operator(f"x:N,K {CSR} row?:P-1 bias?:K addend?:P-1,K trusted=False -> floats:P-1,K")
def bspmm_slots(a: Arguments) -> Tensor:
    """Float32 ``[M, C]``: ``row[i] * sum_j x[j] + bias + addend[i]``, summed in slots."""
    check_edges(a, a.x.size(0))
    ones = torch.ones(len(a.indices), device=a.x.device, dtype=torch.float32)
    sums = canonical_sums(
        a.rowptr, a.x.size(1), lambda e: ones[e], lambda e: a.x[a.indices[e].long()]
    )
    value = _with_bias(_scaled_rows(sums, a.row), a.bias)
    return value if a.addend is None else value + a.addend


def _compressed(a: Arguments, rows: Tensor, columns: Tensor, num_rows: int) -> Arguments:
    """Edges sorted by row, with their row pointer, in place of a layout."""
    order = torch.argsort(rows, stable=True)
    rowptr = torch.zeros(num_rows + 1, dtype=torch.int64, device=rows.device)
    rowptr[1:] = torch.bincount(rows, minlength=num_rows).cumsum(0)
    return changed(a, rowptr=rowptr, indices=columns[order])


def tile_edges(a: Arguments) -> Arguments:
    """The edges of FRDC tiles: bit ``4 * r + c`` is (row r, column c)."""
    device = a.tiles.device
    tile_rows = torch.repeat_interleave(
        torch.arange(len(a.tile_rowptr) - 1, device=device), a.tile_rowptr.diff().long()
    )
    positions = torch.arange(16, dtype=torch.int32, device=device)
    held = ((a.tiles.to(torch.int32).unsqueeze(1) >> positions) & 1).bool()
    tile, bit = held.nonzero(as_tuple=True)
    rows = 4 * tile_rows[tile] + bit // 4
    return _compressed(a, rows, 4 * a.tile_cols[tile].long() + bit % 4, a.num_rows)


def slice_edges(a: Arguments) -> Arguments:
    """The edges of the sliced layout; see ``bitgnn.bits.layouts``."""
    device = a.local_indices.device

    def numbers(pointers: Tensor) -> Tensor:
        counts = pointers.diff().long()
        return torch.repeat_interleave(torch.arange(len(counts), device=device), counts)

    row_of_place = torch.full((a.places,), -1, dtype=torch.int64, device=device)
    row_of_place[a.row_items.long() >> 1] = numbers(a.row_slots)
    lanes = torch.arange(32, device=device)
    units = 2 + (a.group_places.long() & 1)
    place = (a.group_places.long() >> 1).unsqueeze(1) + lanes * units.unsqueeze(1)
    group = numbers(a.group_steps)
    local = (a.local_indices.long() & 0xFFFF).view(len(group), 32, 4)
    held = local != a.slice_size
    columns = local + (numbers(a.slice_groups)[group] * a.slice_size).view(-1, 1, 1)
    rows = row_of_place[place[group]].unsqueeze(2).expand_as(local)
    return _compressed(a, rows[held], columns[held], len(a.row_slots) - 1)


@operator(f"x:N,W(size) size:int {_TILES} {_TO_BITS}".replace("P-1", "num_rows"))
def bspmm_bbb_frdc(a: Arguments) -> Tensor:
    """Words x ``[N, W]`` aggregated over FRDC tiles to words ``[M, W]``."""
    return _words(a, _sign_sums(tile_edges(a)))


@operator(f"x:N,W(size) size:int {_TILES} {_TO_VALUES}".replace("P-1", "num_rows"))
def bspmm_bbf_frdc(a: Arguments) -> Tensor:
    """Words x aggregated over FRDC tiles to float32, or to int32 with ``integer``."""
    return _values(a, _sign_sums(tile_edges(a)))


@operator(f"x:N,W(size) size:int {SLICES} {_TO_BITS}")
def bspmm_bbb_sliced(a: Arguments) -> Tensor:
    """Words x ``[N, W]`` aggregated over column slices to words ``[M, W]``."""
    return _words(a, _sign_sums(slice_edges(a)))


@operator(f"x:N,W(size) size:int {SLICES} {_TO_VALUES}")
def bspmm_bbf_sliced(a: Arguments) -> Tensor:
    """Words x aggregated over column slices to float32, or to int32 with ``integer``."""
    return _values(a, _sign_sums(slice_edges(a)))
