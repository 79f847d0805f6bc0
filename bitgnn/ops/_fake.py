"""Fake kernels: shape and dtype of every operator's result, safe for symbolic sizes.

``FAKES`` maps an operator's name to its fake. Operators share one of a few result shapes, so each
of the functions here says where rows and features come from, and names only what it reads.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from bitgnn.ops._fake_calls import Fake, fakes_like
from bitgnn.ops._fake_conv import CONV_FAKES
from bitgnn.ops._fake_quantise import QUANTISE_FAKES
from bitgnn.ops._fake_ternary import TERNARY_FAKES
from bitgnn.ops.reference import OPERATORS
from bitgnn.ops.reference.heads import HEADS
from bitgnn.ops.reference.linear_chain import LAYER_NUMBERS
from bitgnn.ops.reference.pack import words_for


def _words(like: Tensor, rows: int, size: int) -> Tensor:
    return like.new_empty((rows, words_for(size)), dtype=torch.int32)


def _floats(like: Tensor, rows: int, size: int, integer: bool = False) -> Tensor:
    return like.new_empty((rows, size), dtype=torch.int32 if integer else torch.float32)


def _pack(x: Tensor) -> Tensor:
    return _words(x, x.size(0), x.size(1))


def _pack_levels(x: Tensor, columns: Tensor) -> Tensor:
    return _words(x, x.size(0), columns.size(0))


def _pack_scaled(x: Tensor) -> tuple[Tensor, Tensor]:
    return _pack(x), x.new_empty((x.size(0),), dtype=torch.float32)


def _pack_standardized(x: Tensor, scaled: bool) -> tuple[Tensor, Tensor]:
    return _pack(x), x.new_empty((x.size(0) if scaled else 0,), dtype=torch.float32)


def _unpack(words: Tensor, size: int) -> Tensor:
    return _floats(words, words.size(0), size)


def _linear_chain(x: Tensor, layers: Sequence[int]) -> Tensor:
    if not layers or len(layers) % LAYER_NUMBERS:
        raise RuntimeError(
            f"linear_chain: layers must hold {LAYER_NUMBERS} numbers for each layer, "
            f"got {len(layers)} numbers"
        )
    return _floats(x, x.size(0), layers[-LAYER_NUMBERS + 1])


def _transpose_bits(words: Tensor, size: int) -> Tensor:
    return _words(words, size, words.size(0))


def _product_to_words(x: Tensor, w: Tensor) -> Tensor:
    return _words(x, x.size(0), w.size(0))


def _product_to_floats(x: Tensor, w: Tensor, integer: bool) -> Tensor:
    return _floats(x, x.size(0), w.size(0), integer)


def _bmm_add(x: Tensor, w: Tensor, out_bits: bool) -> Tensor:
    return (_words if out_bits else _floats)(x, x.size(0), w.size(0))


def _bmm_bspmm(x: Tensor, w: Tensor, rowptr: Tensor, out_bits: bool) -> Tensor:
    return (_words if out_bits else _floats)(x, rowptr.size(0) - 1, w.size(0))


def _scores(like: Tensor, rows: int, size: int, head: int) -> Tensor:
    """Scores, or what a head makes of them."""
    if head == HEADS["classes"]:
        return like.new_empty((rows,), dtype=torch.int64)
    return _floats(like, rows, size)


def _narrow(x: Tensor, w: Tensor, rowptr: Tensor, head: int) -> Tensor:
    return _scores(x, rowptr.size(0) - 1, w.size(0), head)


def _bits_linear(x: Tensor, digits: Tensor) -> Tensor:
    return _floats(x, x.size(0), digits.size(1))


def _joint(neighbours: Tensor, rowptr: Tensor) -> Tensor:
    return neighbours.new_empty((rowptr.size(0) - 1, neighbours.size(1)))


def _bits_to_words(x: Tensor, size: int, rowptr: Tensor) -> Tensor:
    return _words(x, rowptr.size(0) - 1, size)


def _bits_to_floats(x: Tensor, size: int, rowptr: Tensor, integer: bool) -> Tensor:
    return _floats(x, rowptr.size(0) - 1, size, integer)


def _bits_to_floats_only(x: Tensor, size: int, rowptr: Tensor) -> Tensor:
    return _floats(x, rowptr.size(0) - 1, size)


def _rows_to_words(x: Tensor, rowptr: Tensor) -> Tensor:
    return _words(x, rowptr.size(0) - 1, x.size(1))


def _rows_to_floats(x: Tensor, rowptr: Tensor, integer: bool) -> Tensor:
    return _floats(x, rowptr.size(0) - 1, x.size(1), integer)


def _rows_to_floats_only(x: Tensor, rowptr: Tensor) -> Tensor:
    return _floats(x, rowptr.size(0) - 1, x.size(1))


def _frdc_to_words(x: Tensor, size: int, num_rows: int) -> Tensor:
    return _words(x, num_rows, size)


def _frdc_to_floats(x: Tensor, size: int, num_rows: int, integer: bool) -> Tensor:
    return _floats(x, num_rows, size, integer)


def _same_rows_to_words(a: Tensor, size: int) -> Tensor:
    return _words(a, a.size(0), size)


def _same_rows_to_floats(a: Tensor, size: int) -> Tensor:
    return _floats(a, a.size(0), size)


def _add_ffb(a: Tensor) -> Tensor:
    return _words(a, a.size(0), a.size(1))


def _concat_bbb(a: Tensor, a_size: int, b_size: int) -> Tensor:
    return _words(a, a.size(0), a_size + b_size)


def _concat_bbf(a: Tensor, a_size: int, b_size: int) -> Tensor:
    return _floats(a, a.size(0), a_size + b_size)


def _concat_ffb(a: Tensor, b: Tensor) -> Tensor:
    return _words(a, a.size(0), a.size(1) + b.size(1))


def _csr_from_edges(
    sources: Tensor, destinations: Tensor, num_rows: int, num_cols: int, self_loops: bool = False
) -> tuple[Tensor, Tensor]:
    room = sources.size(0) + (num_rows if self_loops else 0)
    rowptr = sources.new_empty((num_rows + 1,), dtype=torch.int32)
    return rowptr, sources.new_empty((room,), dtype=torch.int32)


FAKES: dict[str, Fake] = {
    **CONV_FAKES,
    **QUANTISE_FAKES,
    **TERNARY_FAKES,
    **fakes_like(
        OPERATORS,
        (
            (["pack"], _pack),
            (["pack_levels"], _pack_levels),
            (["pack_scaled"], _pack_scaled),
            (["pack_standardized"], _pack_standardized),
            (["unpack"], _unpack),
            (["linear_chain"], _linear_chain),
            (["transpose_bits"], _transpose_bits),
            (["bmm_bbb", "bmm_fbb", "bmm_bfb", "bmm_ffb"], _product_to_words),
            (["bmm_bbf", "bmm_fbf", "bmm_bff"], _product_to_floats),
            (["bmm_add"], _bmm_add),
            (["bmm_bspmm"], _bmm_bspmm),
            (["bmm_bspmm_narrow"], _narrow),
            (["bits_linear"], _bits_linear),
            (["bspmm_bmm", "bspmm_bmm_sliced"], _joint),
            (["bspmm_bbb", "bspmm_tbb", "bspmm_bfb", "bspmm_bbb_sliced"], _bits_to_words),
            (["bspmm_bbf", "bspmm_tbf", "bspmm_bbf_sliced"], _bits_to_floats),
            (["bspmm_bff"], _bits_to_floats_only),
            (["bspmm_fbb", "bspmm_ffb"], _rows_to_words),
            (["bspmm_fbf"], _rows_to_floats),
            (["bspmm_fff", "bspmm_slots"], _rows_to_floats_only),
            (["bspmm_bbb_frdc"], _frdc_to_words),
            (["bspmm_bbf_frdc"], _frdc_to_floats),
            (["add_bbb"], _same_rows_to_words),
            (["add_bbf"], _same_rows_to_floats),
            (["add_ffb"], _add_ffb),
            (["concat_bbb"], _concat_bbb),
            (["concat_bbf"], _concat_bbf),
            (["concat_ffb"], _concat_ffb),
        ),
    ),
    # This one exists only where it was compiled.
    "csr_from_edges": _csr_from_edges,
}
"""Fake kernel of each operator, by name."""
