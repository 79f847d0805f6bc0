"""Shapes of every operator's operands, which fakes compare as compiled operators do.

``SHAPES`` maps an operator to its operands, each a word of sizes behind a colon: a capital letter
is a size that the first operand with it sets, ``W(k)`` the words that hold ``k`` features, a small
letter an integer argument, ``P-1`` one less, ``_`` any size. Operands and operators that are not
named may have any shapes: batches of ternary matrices, attention, and rounding in training.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from bitgnn.ops.reference.pack import words_for

__all__ = ["SHAPES", "check_shapes"]

_PRODUCT = "bias:M threshold:M flip:M"
_PACKED_X = "x:N,W(size) x_scale:N"
_PACKED_W = "w:M,W(size) w_scale:M"
_FLOAT_X = "x:N,K x_threshold:K x_gain:K"
_CSR = "rowptr:P indices:E row:P-1"
_BIT_ROWS = "x:N,W(size) bias:size threshold:size"
_FLOAT_ROWS = "x:N,K bias:K threshold:K"
_TILES = "tile_rowptr:_ tile_cols:T tiles:T row:num_rows"
_SLICES = (
    "rowptr:P row:P-1 local_indices:_ group_steps:_ group_places:_ slice_groups:_ row_slots:_ "
    "row_items:_"
)
_EITHER_X = "x:N,_ x_scale:N x_threshold:size x_gain:size"
_ROOT = "root:R,W(root_size) root_w:M,W(root_size) root_scale:R root_w_scale:M root_bias:M"
_NARROW = f"{_EITHER_X} {_PACKED_W} {_ROOT} col:N bias:M"
_JOINT = "x:P-1,W(size) w:M,W(size) sum_bias:M x_scale:P-1 w_scale:M " + _PRODUCT
_IMAGES = "x:_,_,_,_ w:M,_,_,_ w_scale:M bias:M threshold:M flip:M prepared:M,_"
_TERNARY_X = "x:N,2,W(size) counts:N"

SHAPES: dict[str, str] = {
    "pack": "x:N,K threshold:K",
    "pack_scaled": "x:N,K threshold:K gain:K",
    "pack_standardized": "x:N,K",
    "pack_levels": "x:_,_ columns:B thresholds:B",
    "unpack": "words:N,W(size) scale:N",
    "transpose_bits": "words:N,W(size)",
    "bmm_bbb": f"{_PACKED_X} {_PACKED_W} {_PRODUCT}",
    "bmm_bbf": f"{_PACKED_X} {_PACKED_W} {_PRODUCT}",
    "bmm_fbb": f"{_FLOAT_X} w:M,W(K) w_scale:M {_PRODUCT}",
    "bmm_fbf": f"{_FLOAT_X} w:M,W(K) w_scale:M {_PRODUCT}",
    "bmm_bfb": f"w:M,K x:N,W(K) x_scale:N {_PRODUCT}",
    "bmm_bff": f"w:M,K x:N,W(K) x_scale:N {_PRODUCT}",
    "bmm_ffb": f"{_FLOAT_X} w:M,K {_PRODUCT}",
    "bspmm_bbb": f"{_CSR} {_BIT_ROWS}",
    "bspmm_bbf": f"{_CSR} {_BIT_ROWS}",
    "bspmm_tbb": f"{_CSR} x:_,2,W(size) bias:size threshold:size",
    "bspmm_tbf": f"{_CSR} x:_,2,W(size) bias:size threshold:size",
    "bspmm_fbb": f"{_CSR} {_FLOAT_ROWS} col:N",
    "bspmm_fbf": f"{_CSR} {_FLOAT_ROWS} col:N",
    "bspmm_bfb": f"{_CSR} values:E {_BIT_ROWS} x_scale:N",
    "bspmm_bff": f"{_CSR} values:E {_BIT_ROWS} x_scale:N",
    "bspmm_ffb": f"{_CSR} values:E {_FLOAT_ROWS}",
    "bspmm_fff": f"{_CSR} values:E {_FLOAT_ROWS}",
    "bspmm_slots": f"{_CSR} {_FLOAT_ROWS} addend:P-1,K",
    "bspmm_bbb_frdc": f"{_TILES} {_BIT_ROWS}",
    "bspmm_bbf_frdc": f"{_TILES} {_BIT_ROWS}",
    "bspmm_bbb_sliced": f"{_SLICES} {_BIT_ROWS}",
    "bspmm_bbf_sliced": f"{_SLICES} {_BIT_ROWS}",
    "bmm_add": f"{_EITHER_X} {_PACKED_W} addend:N,M {_PRODUCT}",
    "bmm_bspmm": f"{_EITHER_X} {_PACKED_W} {_CSR} col:N bias:M threshold:M",
    "bmm_bspmm_narrow": f"{_NARROW} {_CSR} order:P-1,2 shift:M",
    "bspmm_bmm": f"{_CSR} {_JOINT} neighbours:_,W(M)",
    "bspmm_bmm_sliced": f"{_SLICES} {_JOINT} neighbours:_,W(M)",
    "bits_linear": "x:N,W(size) digits:3,M,W(size),8,4 step:M x_scale:N bias:M addend:N,M",
    "add_bbb": "a:N,W(size) b:N,W(size) a_scale:N b_scale:N threshold:size",
    "add_bbf": "a:N,W(size) b:N,W(size) a_scale:N b_scale:N",
    "add_ffb": "a:N,K b:N,K threshold:K",
    "concat_bbb": "a:N,W(a_size) b:N,W(b_size)",
    "concat_bbf": "a:N,W(a_size) b:N,W(b_size) a_scale:N b_scale:N",
    "concat_ffb": "a:N,_ b:N,_ threshold:_",
    "conv_bbb": f"{_IMAGES} pool_flip:_",
    "conv_bbf": _IMAGES,
    "conv_add": f"{_IMAGES} addend:_,_,_,_",
    "conv_fbb": _IMAGES,
    "conv_fbf": _IMAGES,
    "pool_bits": "x:_,_,_,V flip:V",
    "pack_images": "x:_,C,_,_ threshold:C",
    "pack_patches": "x:_,C,_,_ threshold:C",
    "bmm_tbf": f"{_TERNARY_X} w:M,W(size) bias:M",
    "bmm_tbb": f"{_TERNARY_X} w:M,W(size) bias:M threshold:M flip:M",
    "linear_ternary": "w:M,W(size) bias:M",
    "linear_chain": "x:_,_ image:_",
}
"""Shapes of the operands of each operator that has rules here."""

_OPERAND = re.compile(r"(\w+):(\S+)")
_SIZE = re.compile(r"W\((\w+)\)|(\w+)-1|(\w+)")


def check_shapes(operator: str, arguments: Mapping[str, Any]) -> None:
    """Require operands of the operator's shapes; sizes may be symbolic.

    Args:
        operator: its name.
        arguments: all arguments by name.

    Raises:
        RuntimeError: a number of dimensions or a size does not fit.
    """
    known: dict[str, Any] = {}

    def expected(size: str) -> Any | None:
        """What a size must be, None for any or one that is set now."""
        found = _SIZE.fullmatch(size)
        assert found is not None, f"{operator}: {size}"
        words, pointer, plain = found.groups()
        name = words or pointer or plain
        if name.isdigit():
            return int(name)
        value = arguments[name] if name in arguments and name.islower() else known.get(name)
        if value is None:
            return None
        return words_for(value) if words else value - 1 if pointer else value

    for name, sizes in _OPERAND.findall(SHAPES.get(operator, "")):
        tensor = arguments.get(name)
        if not isinstance(tensor, Tensor):
            continue
        wanted = sizes.split(",")
        if tensor.dim() != len(wanted):
            raise RuntimeError(
                f"{operator}: {name} must have {len(wanted)} dimensions, got {tensor.dim()}"
            )
        for axis, size in enumerate(wanted):
            value = None if size == "_" else expected(size)
            if value is not None:
                torch._check(
                    tensor.size(axis) == value, _message(operator, name, tensor, axis, value)
                )
            elif size.isalpha() and size.isupper():
                known[size] = tensor.size(axis)


def _message(operator: str, name: str, tensor: Tensor, axis: int, value: Any) -> Callable[[], str]:
    return lambda: (
        f"{operator}: {name} must have size {value} along dimension {axis}, got {tensor.size(axis)}"
    )
