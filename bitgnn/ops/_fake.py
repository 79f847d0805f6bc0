"""Fake kernels: shape and dtype of every operator's result, safe for symbolic sizes.

``FAKES`` maps an operator's name to its fake. Most operators share one of a few result shapes, so
each fake only says where its rows and its features come from.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bitgnn.ops._fake_conv import CONV_FAKES
from bitgnn.ops._fake_ternary import TERNARY_FAKES
from bitgnn.ops.reference.heads import HEADS
from bitgnn.ops.reference.linear_chain import LAYER_NUMBERS
from bitgnn.ops.reference.pack import words_for

FAKES: dict[str, Callable[..., Any]] = CONV_FAKES | TERNARY_FAKES
"""Fake kernel of each operator, by name."""


def _fake(function: Callable[..., Any]) -> Callable[..., Any]:
    FAKES[function.__name__] = function
    return function


def _words(like: Tensor, rows: int, size: int) -> Tensor:
    return like.new_empty((rows, words_for(size)), dtype=torch.int32)


def _floats(like: Tensor, rows: int, size: int, integer: bool = False) -> Tensor:
    return like.new_empty((rows, size), dtype=torch.int32 if integer else torch.float32)


@_fake
def pack(x: Tensor, threshold: Tensor | None = None) -> Tensor:
    return _words(x, x.size(0), x.size(1))


@_fake
def pack_scaled(
    x: Tensor, threshold: Tensor | None = None, gain: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    return _words(x, x.size(0), x.size(1)), x.new_empty((x.size(0),), dtype=torch.float32)


@_fake
def pack_standardized(x: Tensor, relu: bool = False, scaled: bool = False) -> tuple[Tensor, Tensor]:
    scale = x.new_empty((x.size(0) if scaled else 0,), dtype=torch.float32)
    return _words(x, x.size(0), x.size(1)), scale


@_fake
def unpack(words: Tensor, size: int, scale: Tensor | None = None) -> Tensor:
    return _floats(words, words.size(0), size)


@_fake
def linear_chain(x: Tensor, image: Tensor, layers: Sequence[int]) -> Tensor:
    return _floats(x, x.size(0), layers[-LAYER_NUMBERS + 1])


@_fake
def transpose_bits(words: Tensor, size: int) -> Tensor:
    return _words(words, size, words.size(0))


def _product_to_words(x: Tensor, w: Tensor, *_: Any, **__: Any) -> Tensor:
    return _words(x, x.size(0), w.size(0))


def _product_to_floats(position: int) -> Callable[..., Tensor]:
    """Fake of a product whose ``integer`` flag is argument number ``position`` after x and w."""

    def fake(x: Tensor, w: Tensor, *rest: Any, integer: bool = False, **_: Any) -> Tensor:
        integer = rest[position] if len(rest) > position else integer
        return _floats(x, x.size(0), w.size(0), integer)

    return fake


for _name in ("bmm_bbb", "bmm_fbb", "bmm_bfb", "bmm_ffb"):
    FAKES[_name] = _product_to_words
for _name, _position in (("bmm_bbf", 4), ("bmm_fbf", 5), ("bmm_bff", 3)):
    FAKES[_name] = _product_to_floats(_position)


@_fake
def bmm_add(
    x: Tensor, w: Tensor, addend: Tensor, size: int, *_: Any, out_bits: bool = False, **__: Any
) -> Tensor:
    out_bits = _[8] if len(_) > 8 else out_bits
    return (_words if out_bits else _floats)(x, x.size(0), w.size(0))


@_fake
def bmm_bspmm(
    x: Tensor,
    w: Tensor,
    size: int,
    rowptr: Tensor,
    indices: Tensor,
    *_: Any,
    out_bits: bool = False,
    **__: Any,
) -> Tensor:
    out_bits = _[10] if len(_) > 10 else out_bits
    return (_words if out_bits else _floats)(x, rowptr.size(0) - 1, w.size(0))


HEAD_OPTION = 8
"""Place of the head among the options of the narrow pairs, where it is given by its place."""


def _scores(like: Tensor, rows: int, size: int, head: int) -> Tensor:
    """Scores, or what a head makes of them."""
    if head == HEADS["classes"]:
        return like.new_empty((rows,), dtype=torch.int64)
    return _floats(like, rows, size)


@_fake
def bmm_bspmm_narrow(
    x: Tensor,
    w: Tensor,
    size: int,
    rowptr: Tensor,
    indices: Tensor,
    *options: Any,
    head: int = 0,
    **_: Any,
) -> Tensor:
    head = options[HEAD_OPTION] if len(options) > HEAD_OPTION else head
    return _scores(x, rowptr.size(0) - 1, w.size(0), head)


@_fake
def bmm_bspmm_narrow_blocked(
    x: Tensor,
    w: Tensor,
    size: int,
    block_rowptr: Tensor,
    local_indices: Tensor,
    block_size: int,
    *options: Any,
    head: int = 0,
    **_: Any,
) -> Tensor:
    head = options[HEAD_OPTION] if len(options) > HEAD_OPTION else head
    return _scores(x, _blocked_rows(x, block_rowptr, block_size), w.size(0), head)


@_fake
def bits_linear(x: Tensor, digits: Tensor, *_: Any, **__: Any) -> Tensor:
    return _floats(x, x.size(0), digits.size(1))


@_fake
def bspmm_slots(x: Tensor, rowptr: Tensor, *_: Any, **__: Any) -> Tensor:
    return _floats(x, rowptr.size(0) - 1, x.size(1))


def _joint_to_words(neighbours: Tensor, rowptr: Tensor, *_: Any, **__: Any) -> Tensor:
    return neighbours.new_empty((rowptr.size(0) - 1, neighbours.size(1)))


FAKES["bspmm_bmm"] = FAKES["bspmm_bmm_sliced"] = _joint_to_words


@_fake
def bspmm_bbb(
    x: Tensor,
    size: int,
    rowptr: Tensor,
    indices: Tensor,
    row: Tensor | None = None,
    threshold: Tensor | None = None,
) -> Tensor:
    return _words(x, rowptr.size(0) - 1, size)


@_fake
def bspmm_bbf(
    x: Tensor,
    size: int,
    rowptr: Tensor,
    indices: Tensor,
    row: Tensor | None = None,
    bias: Tensor | None = None,
    integer: bool = False,
) -> Tensor:
    return _floats(x, rowptr.size(0) - 1, size, integer)


FAKES["bspmm_tbb"], FAKES["bspmm_tbf"] = bspmm_bbb, bspmm_bbf


def _float_rows_to_words(x: Tensor, rowptr: Tensor, *_: Any, **__: Any) -> Tensor:
    return _words(x, rowptr.size(0) - 1, x.size(1))


def _float_rows_to_floats(x: Tensor, rowptr: Tensor, *_: Any, **__: Any) -> Tensor:
    return _floats(x, rowptr.size(0) - 1, x.size(1))


def _bit_rows_to_words(x: Tensor, size: int, rowptr: Tensor, *_: Any, **__: Any) -> Tensor:
    return _words(x, rowptr.size(0) - 1, size)


def _bit_rows_to_floats(x: Tensor, size: int, rowptr: Tensor, *_: Any, **__: Any) -> Tensor:
    return _floats(x, rowptr.size(0) - 1, size)


@_fake
def bspmm_fbf(
    x: Tensor,
    rowptr: Tensor,
    indices: Tensor,
    row: Tensor | None = None,
    col: Tensor | None = None,
    bias: Tensor | None = None,
    integer: bool = False,
) -> Tensor:
    return _floats(x, rowptr.size(0) - 1, x.size(1), integer)


FAKES["bspmm_fbb"] = FAKES["bspmm_ffb"] = _float_rows_to_words
FAKES["bspmm_fff"] = _float_rows_to_floats
FAKES["bspmm_bfb"] = _bit_rows_to_words
FAKES["bspmm_bff"] = _bit_rows_to_floats


@_fake
def bspmm_bbb_frdc(
    x: Tensor,
    size: int,
    tile_rowptr: Tensor,
    tile_cols: Tensor,
    tiles: Tensor,
    num_rows: int,
    method: int,
    row: Tensor | None = None,
    threshold: Tensor | None = None,
) -> Tensor:
    return _words(x, num_rows, size)


@_fake
def bspmm_bbf_frdc(
    x: Tensor,
    size: int,
    tile_rowptr: Tensor,
    tile_cols: Tensor,
    tiles: Tensor,
    num_rows: int,
    method: int,
    row: Tensor | None = None,
    bias: Tensor | None = None,
    integer: bool = False,
) -> Tensor:
    return _floats(x, num_rows, size, integer)


def _blocked_rows(x: Tensor, block_rowptr: Tensor, block_size: int) -> int:
    """Rows of a blocked layout: one pointer per block and row, at least one block."""
    num_blocks = torch.sym_max(1, (x.size(0) + block_size - 1) // block_size)
    return (block_rowptr.size(0) - 1) // num_blocks


@_fake
def bspmm_bbb_blocked(
    x: Tensor,
    size: int,
    block_rowptr: Tensor,
    local_indices: Tensor,
    block_size: int,
    row: Tensor | None = None,
    threshold: Tensor | None = None,
) -> Tensor:
    return _words(x, _blocked_rows(x, block_rowptr, block_size), size)


@_fake
def bspmm_bbf_blocked(
    x: Tensor,
    size: int,
    block_rowptr: Tensor,
    local_indices: Tensor,
    block_size: int,
    row: Tensor | None = None,
    bias: Tensor | None = None,
    integer: bool = False,
) -> Tensor:
    return _floats(x, _blocked_rows(x, block_rowptr, block_size), size, integer)


def _sliced_to_words(x: Tensor, size: int, rowptr: Tensor, *_: Any, **__: Any) -> Tensor:
    return _words(x, rowptr.size(0) - 1, size)


def _sliced_to_floats(
    x: Tensor, size: int, rowptr: Tensor, *rest: Any, integer: bool = False, **_: Any
) -> Tensor:
    integer = rest[10] if len(rest) > 10 else integer
    return _floats(x, rowptr.size(0) - 1, size, integer)


FAKES["bspmm_bbb_sliced"] = _sliced_to_words
FAKES["bspmm_bbf_sliced"] = _sliced_to_floats


def _same_rows_to_words(a: Tensor, b: Tensor, size: int, *_: Any, **__: Any) -> Tensor:
    return _words(a, a.size(0), size)


def _same_rows_to_floats(a: Tensor, b: Tensor, size: int, *_: Any, **__: Any) -> Tensor:
    return _floats(a, a.size(0), size)


FAKES["add_bbb"] = _same_rows_to_words
FAKES["add_bbf"] = _same_rows_to_floats


@_fake
def add_ffb(a: Tensor, b: Tensor, threshold: Tensor | None = None) -> Tensor:
    return _words(a, a.size(0), a.size(1))


@_fake
def concat_bbb(a: Tensor, b: Tensor, a_size: int, b_size: int) -> Tensor:
    return _words(a, a.size(0), a_size + b_size)


@_fake
def concat_bbf(
    a: Tensor,
    b: Tensor,
    a_size: int,
    b_size: int,
    a_scale: Tensor | None = None,
    b_scale: Tensor | None = None,
) -> Tensor:
    return _floats(a, a.size(0), a_size + b_size)


@_fake
def concat_ffb(a: Tensor, b: Tensor, threshold: Tensor | None = None) -> Tensor:
    return _words(a, a.size(0), a.size(1) + b.size(1))


@_fake
def run_stages(
    x: Tensor,
    x_scale: Tensor | None,
    image: Tensor,
    slices: Tensor,
    state: Tensor,
    stages: list[int],
    most_degree: int,
) -> Tensor:
    # The last stage's size: the third of its 15 numbers.
    return _floats(x, x.size(0), stages[-13])
