"""Rewrites of a program when it is bound: several calls as one.

Each row of :data:`REWRITES` names calls that follow one another, each the only reader of the one
before, and makes one or two calls of them, or none where no operator does them together.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from bitgnn.bits import BitImages, BitTensor
from bitgnn.bits.tensor import words_for
from bitgnn.inference.layouts import Rewriter, laid_out, sliced
from bitgnn.inference.operators import argument_names, overload
from bitgnn.inference.program import Call, Part, Ref
from bitgnn.ops import conv
from bitgnn.ops.linear import MOST_LAYERS, LinearChain, make_chain
from bitgnn.ops.reference.pairs import HEADS, MAX_NARROW_SIZE

MOST_NARROW_COLUMNS = 48
"""Columns up to which rows are narrow whatever reads them."""


class Rewrite(NamedTuple):
    """A row of :data:`REWRITES`.

    Attributes:
        pattern: operators in their order, as a regular expression over their names.
        make: gives other calls or None; takes the calls, the :class:`Rewriter` and the limits.
        limits: sizes up to which that pays, by the names that ``make`` gives them.
    """

    pattern: str
    make: Callable[..., list[Call] | None]
    limits: Mapping[str, Any] = MappingProxyType({})


def _call(operator: str, last: Call, output: int | None = None, **named: Any) -> Call:
    """A call with arguments by name, in the place of another whose results it writes."""
    schema = overload(f"bitgnn::{operator}")._schema  # type: ignore[attr-defined]
    unknown = named.keys() - set(argument_names(f"bitgnn::{operator}"))
    assert not unknown, unknown
    given = [named.get(a.name, a.default_value) for a in schema.arguments if a.name != "trusted"]
    outputs = last.outputs if output is None else (output,)
    return Call(f"bitgnn::{operator}", last.layer, tuple(given), outputs)


def _packing(
    group: Sequence[Call],
) -> tuple[Any, tuple[Any, Any, bool] | None, Sequence[Call]]:
    """Input of a group; threshold, gain and scale of its packing; the calls behind it."""
    first = group[0]
    if first.kind not in ("pack", "pack_scaled"):
        return first.named["x"], None, group
    named, scaled = first.named, group[1].named.get("x_scale") is not None
    return named["x"], (named.get("threshold"), named.get("gain"), scaled), group[1:]


def packed_product(group: Sequence[Call], r: Rewriter) -> list[Call] | None:
    """pack, bmm_bbb -> bmm_fbb; pack, bmm_bbf -> bmm_fbf; pack, bmm_add -> bmm_add."""
    x, packing, (product,) = _packing(group)
    assert packing is not None, "the group begins with a packing call"
    named = {**product.named, "x": x, "x_scale": None}
    (threshold, gain, scaled), size = packing, named.pop("size")
    shifted = {"x_threshold": threshold, "x_gain": gain, "scale": scaled}
    if product.kind == "bmm_add":
        return [_call("bmm_add", product, **{**named, "size": size, **shifted})]
    if not scaled and named.get("w_scale") is not None:
        return None  # without a row scale these two leave the weight's scale out as well
    del named["x_scale"]
    return [_call(product.kind.replace("bmm_b", "bmm_f"), product, **{**named, **shifted})]


def aggregated_product(group: Sequence[Call], r: Rewriter) -> list[Call] | None:
    """[pack,] bmm_bbb, bspmm_bb* -> bmm_bspmm; [pack,] bmm_bbf, bspmm_fb* -> bmm_bspmm."""
    x, packing, (product, sums) = _packing(group)
    of_product, of_sums = product.named, sums.named
    hidden_bits = product.kind == "bmm_bbb"
    if of_product.get("bias") is not None or (hidden_bits and len(product.arguments) > 3):
        return None
    if not hidden_bits and product.layer != sums.layer:  # the trained model sums rounded floats
        return None
    if hidden_bits and r.slices(of_sums["rowptr"], words_for(of_sums["size"])):
        return None
    threshold, gain, scaled = packing or (None, None, False)
    factors = {name: of_sums.get(name) for name in ("row", "col", "bias", "threshold")}
    return [
        _call(
            "bmm_bspmm", sums, x=x, w=of_product["w"], size=of_product["size"],
            rowptr=of_sums["rowptr"], indices=of_sums["indices"],
            x_scale=None if packing else of_product.get("x_scale"),
            w_scale=of_product.get("w_scale"), x_threshold=threshold, x_gain=gain,
            scale=scaled and not hidden_bits, hidden_bits=hidden_bits,
            out_bits=sums.kind.endswith("b"), **factors,
        )
    ]  # fmt: skip


def narrow_sums(group: Sequence[Call], r: Rewriter, *, most_columns: int) -> list[Call] | None:
    """[pack,] bmm_bbf, bspmm_fbf[, a head or bmm_add] -> bmm_bspmm_narrow.

    A head is what hands out the scores; a product of the nodes' own bits is added to the sums. None
    where rows may be held as floats.
    """
    x, packing, (product, sums, *ends) = _packing(group)
    of_product, of_sums = product.named, sums.named
    shift, added, head = of_product.get("bias"), {}, 0
    if product.layer != sums.layer:  # the trained model sums rounded floats
        return None
    if shift is not None and of_product["size"] > MAX_NARROW_SIZE:
        return None
    if ends and ends[0].kind == "bmm_add":
        # Up to these sizes the product is narrow integers on every device, whatever the graph.
        root = ends[0].named
        is_narrow = r.tensor(root["w"]).size(0) <= most_columns
        is_narrow &= of_product["size"] <= MAX_NARROW_SIZE
        if not is_narrow or root["addend"] != Ref(sums.outputs[0]) or root.get("out_bits"):
            return None
        added = {
            "root": root["x"], "root_w": root["w"], "root_size": root["size"],
            "root_scale": root.get("x_scale"), "root_w_scale": root.get("w_scale"),
            "root_bias": root.get("bias"),
        }  # fmt: skip
    elif ends:
        head = _HEADS[ends[0].kind]
    threshold, gain, scaled = packing or (None, None, False)
    return [
        _call(
            "bmm_bspmm_narrow", group[-1], x=x, w=of_product["w"], size=of_product["size"],
            rowptr=of_sums["rowptr"], indices=of_sums["indices"],
            x_scale=None if packing else of_product.get("x_scale"),
            w_scale=of_product.get("w_scale"), x_threshold=threshold, x_gain=gain, scale=scaled,
            row=of_sums.get("row"), col=of_sums.get("col"), bias=of_sums.get("bias"), head=head,
            order=Part(of_sums["rowptr"].graph, "row_order"), shift=shift, **added,
        )
    ]  # fmt: skip


def joint_product(group: Sequence[Call], r: Rewriter) -> list[Call] | None:
    """[bmm_bbb,] bspmm_bbf, bmm_add to bits -> [bmm_bbb,] bspmm_bmm."""
    *products, sums, root = group
    own, of_sums = root.named, sums.named
    if not own.get("out_bits") or own["addend"] != Ref(sums.outputs[0]):
        return None
    if products and len(products[0].arguments) > 3:
        return None
    last = {name: own.get(name) for name in ("x_scale", "w_scale", "bias", "threshold", "flip")}
    joint = _call(
        "bspmm_bmm", root, neighbours=of_sums["x"], rowptr=of_sums["rowptr"],
        indices=of_sums["indices"], x=own["x"], w=own["w"], size=own["size"],
        row=of_sums["row"], sum_bias=of_sums.get("bias"), **last,
    )  # fmt: skip
    is_sliced = r.slices(of_sums["rowptr"], words_for(of_sums["size"]))
    return [*products, sliced(joint) if is_sliced else joint]


def is_linear_pair(group: Sequence[Call]) -> bool:
    """Whether bits_linear, bspmm_fbf, bits_linear are two maps of the same bits, added."""
    if [call.kind for call in group] != ["bits_linear", "bspmm_fbf", "bits_linear"]:
        return False
    first, sums, last = group
    one, other = first.named, last.named
    shared = [(named["x"], named.get("x_scale")) for named in (one, other)]
    return shared[0] == shared[1] and other.get("addend") == Ref(sums.outputs[0])


def linear_pair(group: Sequence[Call], r: Rewriter, *, fragment: int) -> list[Call] | None:
    """bits_linear, bspmm_fbf, bits_linear of the same bits -> bits_linear, bspmm_slots.

    One product for two float maps, ``A(x V) + x W``. Each map's columns start with a whole
    ``fragment``, the columns of one access of a GPU. Slots add floats in an order of their own, so
    that no number of edges may decide.
    """
    first, sums, last = group
    one, of_sums, other = first.named, sums.named, last.named
    if not is_linear_pair(group) or r.has_columns(of_sums["rowptr"]):
        return None
    width = r.tensor(one["step"]).size(0)
    root = -(-width // fragment) * fragment
    apart = [
        tuple(None if n.get(k) is None else r.tensor(n[k]) for k in ("digits", "step", "bias"))
        for n in (one, other)
    ]
    r.derive_from([first, last])
    digits, step, bias = _stacked(apart, root)
    both = r.register()
    calls = [
        _call("bits_linear", first, both, **{**one, "digits": digits, "step": step, "bias": bias})
    ]
    mapped, added = r.register(), r.register()
    for place, register in ((0, mapped), (root, added)):
        cut = (Ref(both), 1, place, place + width)
        calls.append(Call("aten::slice.Tensor", last.layer, cut, (register,)))
    given = {name: of_sums.get(name) for name in ("rowptr", "indices", "row", "bias")}
    calls.append(_call("bspmm_slots", last, x=Ref(mapped), addend=Ref(added), **given))
    return calls


def _stacked(pairs: Sequence[Any], columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """Digits, steps and biases of both maps one below the other, ``columns`` outputs each."""
    lacking = columns - pairs[0][1].size(0)
    digits = torch.cat([pad(d, (0, 0, 0, 0, 0, 0, 0, lacking)) for d, _, _ in pairs], dim=1)
    steps = torch.cat([pad(step, (0, lacking)) for _, step, _ in pairs])
    biases = [torch.zeros_like(step) if bias is None else bias for _, step, bias in pairs]
    return digits.contiguous(), steps, torch.cat([pad(bias, (0, lacking)) for bias in biases])


def packed_int8_product(group: Sequence[Call], r: Rewriter) -> list[Call] | None:
    """pack_int8, bmm_ii* -> bmm_fi*, without an addend."""
    packing, product = (call.named for call in group)
    if product.get("addend") is not None:
        return None
    last = {k: v for k, v in product.items() if k not in ("codes", "size", "addend")}
    return [_call(group[1].kind.replace("bmm_i", "bmm_f"), group[1], **packing, **last)]


def joint_int8_product(group: Sequence[Call], r: Rewriter) -> list[Call] | None:
    """bspmm_bbf, bmm_add_iib -> bspmm_bmm_iib over CSR.

    A GPU then passes the sums on as 16-bit integers, half the bytes of floats.
    """
    sums, root = group
    of_sums, own = sums.named, root.named
    if own["addend"] != Ref(sums.outputs[0]):
        return None
    if r.slices(of_sums["rowptr"], words_for(of_sums["size"])):
        return None
    last = {k: v for k, v in own.items() if k != "addend"}
    given = {name: of_sums.get(name) for name in ("rowptr", "indices", "row")}
    last |= {"neighbours": of_sums["x"], "sum_bias": of_sums.get("bias")}
    return [_call("bspmm_bmm_iib", root, **given, **last)]


def pooled_convolution(group: Sequence[Call], r: Rewriter) -> list[Call] | None:
    """conv_bbb, pool_bits -> conv_bbb, which a GPU does in one launch where it can.

    Windows may not overlap, leave pixels out or be padded.
    """
    named, pool = group[0].named, group[1].named
    if pool["stride"] != pool["kernel"] or any(pool["padding"]):
        return None
    pooled = {"pool": pool["kernel"], "pool_flip": pool.get("flip")}
    return [_call("conv_bbb", group[1], **named, **pooled)]


def chained_products(
    group: Sequence[Call], r: Rewriter, *, device: str, most_rows: int, most_bytes: int
) -> list[Call] | None:
    """bmm_bbb, ..., bmm_bbf -> linear_chain: one launch, on devices whose launches cost enough.

    Beyond ``most_rows`` a launch for each layer is faster; weights of more than ``most_bytes`` come
    faster through all multiprocessors, layer by layer, than through a cluster.
    """
    allowed = [*[{"w", "threshold", "flip"}] * (len(group) - 1), {"w", "w_scale", "bias"}]
    if any(call.named.get("x_scale") is not None for call in group):
        return None
    if not all(c.tensors.keys() <= names for c, names in zip(group, allowed, strict=True)):
        return None
    if r.tensor(group[0].named["w"]).device.type != device:
        return None
    chain = _chain_of(group, r)
    if chain is None or chain.image.nbytes > most_bytes or not r.few_rows(most_rows):
        return None
    r.derive_from(group)
    given = {"x": group[0].named["x"], "image": chain.image, "layers": list(chain.layers)}
    return [_call("linear_chain", group[-1], **given)]


def _chain_of(group: Sequence[Call], r: Rewriter) -> LinearChain | None:
    """The layers in the form of one launch, or None where they are too wide."""

    def held(call: Call, name: str) -> Tensor | None:
        value = call.named.get(name)
        return None if value is None else r.tensor(value)

    weights = [BitTensor(r.tensor(c.named["w"]), c.named["size"]) for c in group]
    hidden = []
    for weight, call in zip(weights[:-1], group[:-1], strict=True):
        kernels = BitImages(weight.words[:, None, None], weight.size)
        threshold, flip = held(call, "threshold"), held(call, "flip")
        # Limit and turned of each output's comparison of integers.
        limits = conv.prepare(kernels, threshold=threshold, flip=flip)[:, 1:].contiguous()
        hidden.append((weight, limits))
    try:
        last = held(group[-1], "w_scale"), held(group[-1], "bias")
        chain = make_chain(hidden, weights[-1], *last)
    except ValueError:
        return None
    return chain if chain.fits() else None


_HEADS = {"log_softmax": 1, "softmax": 2, "argmax": HEADS["classes"]}
_PACK = "pack(?:_scaled)? "
_LAST = "|".join((*_HEADS, "bmm_add"))
REWRITES = (
    Rewrite("pack_int8 bmm_ii[bf]", packed_int8_product),
    Rewrite("bspmm_bbf bmm_add_iib", joint_int8_product),
    Rewrite(
        "(?:bmm_bbb )+bmm_bbf", chained_products,
        {"device": "cuda", "most_rows": 2048, "most_bytes": 512 << 10},
    ),
    Rewrite(
        rf"(?:{_PACK})?bmm_bbf bspmm_fbf(?: (?:{_LAST}))?", narrow_sums,
        {"most_columns": MOST_NARROW_COLUMNS},
    ),
    Rewrite(rf"(?:{_PACK})?bmm_bb[bf] bspmm_[fb]b[bf]", aggregated_product),
    Rewrite(rf"{_PACK}(?:bmm_bb[bf]|bmm_add)", packed_product),
    Rewrite("(?:bmm_bbb )?bspmm_bbf bmm_add", joint_product),
    Rewrite("bits_linear bspmm_fbf bits_linear", linear_pair, {"fragment": 4}),
    Rewrite("conv_bbb pool_bits", pooled_convolution),
)  # fmt: skip
"""In the order in which they are tried."""
LONGEST = MOST_LAYERS
"""Calls that one stands for at most."""


def rewritten(
    calls: Sequence[Call], kept: Collection[int], r: Rewriter, fuses: bool
) -> list[tuple[tuple[Call, ...], list[Call]]]:
    """The calls that run, each time with those of the program that they stand for.

    ``kept`` are registers that are read afterwards.
    """
    readers = Counter(register for call in calls for register in call.inputs)
    readers.update(kept)
    found: list[tuple[tuple[Call, ...], list[Call]]] = []
    start = 0
    while start < len(calls):
        for length in range(min(LONGEST, len(calls) - start) if fuses else 1, 1, -1):
            group = tuple(calls[start : start + length])
            made = _fused(group, r) if _is_private(group, readers) else None
            if made is not None:
                break
        else:
            group = (calls[start],)
            made = laid_out(group[0], r)
        found.append((group, made))
        start += len(group)
    return found


def _fused(group: Sequence[Call], r: Rewriter) -> list[Call] | None:
    if any(map(r.is_weighted, group)):
        return None
    kinds = " ".join(call.kind for call in group)
    fitting = (row for row in REWRITES if re.fullmatch(row.pattern, kinds))
    found = (row.make(group, r, **row.limits) for row in fitting)
    return next((made for made in found if made is not None), None)


def _is_private(group: Sequence[Call], readers: Mapping[int, int]) -> bool:
    """True if every result inside a group of calls is read by the next call there alone."""
    return all(
        set(call.outputs) <= set(following.inputs)
        and all(readers[register] == 1 for register in call.outputs)
        for call, following in itertools.pairwise(group)
    )
