"""Ternary products and attention: values against float products, compilation, export."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bitgnn.bits import BitAdjacency, BitTensor, BooleanTensor, TernaryTensor
from bitgnn.ops import bmm, bspmm, ternary
from bitgnn.ops.reference.ternary import (
    attention_ternary_floats,
    exact_exp,
    softmax_table,
)

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def weights(outputs: int, size: int, device: torch.device | str = "cpu") -> BitTensor:
    return BitTensor.from_float(torch.randn(outputs, size, device=device), scale="mean")


@pytest.mark.parametrize("boolean", [False, True])
def test_every_product_of_short_rows(boolean, device):
    """All rows of up to four values times all weights."""
    for size in range(1, 5):
        choices = (0.0, 1.0) if boolean else (-1.0, 0.0, 1.0)
        x = torch.tensor(list(itertools.product(choices, repeat=size)), device=device)
        w = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=size)), device=device)
        bits = BitTensor.from_float(w)
        kind = "bool" if boolean else "ternary"
        sums = ternary.linear(x, bits, 1.0, activation=kind, dtype=torch.int32)
        assert torch.equal(sums, (x @ w.t()).int())
        if not boolean:
            rows = TernaryTensor.from_float(x, 1.0)
            assert torch.equal(bmm.tbf(rows, bits, integer=True), sums)
            assert torch.equal(bmm.tbb(rows, bits).to_float() > 0, sums >= 0)
        left = (BooleanTensor if boolean else TernaryTensor).from_float(x, 1.0)
        all_rows = torch.tensor(list(itertools.product((-1.0, 0.0, 1.0), repeat=size)))
        right = TernaryTensor.from_float(all_rows.to(device), 1.0)
        expected = x.cpu() @ all_rows.t()
        assert torch.equal(ternary.matmul(left, right).cpu(), expected)


@given(
    n=st.integers(0, 40),
    k=st.integers(0, 200),
    m=st.integers(0, 70),
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from(DTYPES),
    kind=st.sampled_from(["ternary", "bool"]),
)
def test_linear_is_the_product_of_emulated_values(n, k, m, seed, dtype, kind):
    torch.manual_seed(seed)
    x, w = torch.randn(n, k).to(dtype), weights(m, k)
    bias, scale = torch.randn(m), 0.25 + torch.rand(())
    out = ternary.linear(x, w, scale, bias=bias, activation=kind, dtype=torch.float32)
    rows = (TernaryTensor if kind == "ternary" else BooleanTensor).from_float(x, scale)
    expected = rows.to_float() @ w.to_float().t() + bias
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-4)
    narrow = ternary.linear(x, w, scale, bias=bias, activation=kind)
    assert narrow.dtype == dtype
    assert torch.equal(narrow, out.to(dtype))


def test_linear_takes_any_leading_dimensions(device):
    x, w = torch.randn(2, 3, 4, 70, device=device), weights(33, 70, device)
    out = ternary.linear(x.transpose(0, 2), w, 0.7)
    assert out.shape == (4, 3, 2, 33)
    assert torch.equal(out.transpose(0, 2), ternary.linear(x, w, 0.7))
    assert ternary.linear(x[0, 0, 0], w, 0.7).shape == (33,)
    shared = ternary.linear(x, w, 0.7, w_scale=torch.tensor(0.5, device=device))
    each = ternary.linear(x, w, 0.7, w_scale=torch.full((33,), 0.5, device=device))
    assert torch.equal(shared, each)


def test_comparisons(device):
    x, w = TernaryTensor.from_float(torch.randn(9, 70, device=device), 0.6), weights(40, 70, device)
    bias, threshold = torch.randn(2, 40, device=device)
    flip = torch.rand(40, device=device) < 0.5
    values = bmm.tbf(x, w, bias=bias)
    bits = bmm.tbb(x, w, bias=bias, threshold=threshold, flip=flip)
    assert torch.equal(bits.to_float() > 0, (values >= threshold) ^ flip)
    plain = BitTensor(w.words, 70)
    x.scale = None
    assert torch.equal(bmm.tbf(x, plain).int(), bmm.tbf(x, w, integer=True))
    assert torch.equal(bmm.tbf(x, w, scale=False).int(), bmm.tbf(x, w, integer=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_matmul_is_batched_and_strided(dtype, device):
    q, k = torch.randn(2, 2, 9, 3, 40, device=device)  # [B, N, H, D]
    left = TernaryTensor.from_float(q.transpose(1, 2), 0.5)
    right = TernaryTensor.from_float(k.transpose(1, 2), 0.25)
    expected = left.to_float() @ right.to_float().transpose(-1, -2)
    assert torch.equal(ternary.matmul(left, right, dtype=dtype), expected.to(dtype))
    # Packed as it lies and seen the other way round: words and counts have strides.
    turned = TernaryTensor.from_float(q, 0.5)
    turned.words, turned.counts = turned.words.transpose(1, 2), turned.counts.transpose(1, 2)
    assert torch.equal(ternary.matmul(turned, right, dtype=dtype), expected.to(dtype))
    bare = ternary.matmul(left, right, dtype=torch.int32)
    assert torch.equal(bare, ternary.matmul(left, right, scale=False).int())


def test_powers_are_those_of_e():
    for x in [0.0, -1e-300, -1e-9, -0.1, -0.3465, -0.3466, -1.0, -17.3, -300.0, -699.9]:
        assert exact_exp(x) == pytest.approx(math.exp(x), rel=4e-16)
    assert exact_exp(-700.1) == 0 == exact_exp(-1e300)
    for scale in (1e-300, 1e-17, 0.001, 0.1, 5.0, 1e300):
        table = softmax_table(scale, 300)
        assert table[0] == 1
        assert all(a >= b for a, b in itertools.pairwise(table))


def emulated_attention(q, k, v, scale, bool_scale, out_scale, allowed):
    """Attention of float values in float64, by softmax."""
    heads = q.size(1) // max(k.size(1), 1)
    k, v = k.repeat_interleave(heads, 1), v.repeat_interleave(heads, 1)
    scores = (q.double() @ k.double().transpose(-1, -2)) * scale
    scores = scores.masked_fill(~allowed, -math.inf)
    probability = scores.softmax(-1).nan_to_num(0.0)
    # Nearer than this to the border, powers of another library may decide otherwise.
    unclear = ((probability - 0.5 * bool_scale).abs() < 1e-12).any(-1)
    return out_scale * ((probability >= 0.5 * bool_scale).double() @ v.double()), unclear


@given(
    seed=st.integers(0, 10**6),
    queries=st.integers(0, 20),
    keys=st.integers(0, 80),
    size=st.sampled_from([1, 8, 32, 40, 64, 100]),
    causal=st.booleans(),
    masked=st.booleans(),
)
def test_attention_is_softmax_attention(seed, queries, keys, size, causal, masked):
    torch.manual_seed(seed)
    batch, groups, heads = 2, 2, 4
    q, k, v = (
        TernaryTensor.from_float(torch.randn(batch, *shape, size), 1.0)
        for shape in ((heads, queries), (groups, keys), (groups, keys))
    )
    columns = TernaryTensor.from_columns(v.to_float(), 1.0)
    mask = torch.rand(batch, keys) < 0.7 if masked else None
    scale, bool_scale = 0.37, 0.02 + float(torch.rand(()))
    out = ternary.attention(
        q, k, columns, scale=scale, bool_scale=bool_scale, mask=mask, causal=causal
    )
    assert out.shape == (batch, heads, queries, size)
    allowed = torch.ones(batch, 1, queries, keys, dtype=torch.bool)
    if mask is not None:
        allowed &= mask[:, None, None]
    if causal:
        allowed &= torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    expected, unclear = emulated_attention(
        q.to_float(), k.to_float(), v.to_float(), scale, bool_scale, 1.0, allowed
    )
    assert torch.equal(out[~unclear].double(), expected[~unclear])


@pytest.mark.parametrize("keys", [1, 2, 32, 64, 256])
def test_probabilities_on_the_border_count(keys, device):
    """All keys alike: each probability is 1 / keys, which half of the scale may be exactly."""
    q = TernaryTensor.from_float(torch.ones(1, 1, 3, 40, device=device), 1.0)
    k = TernaryTensor.from_float(torch.ones(1, 1, keys, 40, device=device), 1.0)
    v = TernaryTensor.from_columns(torch.ones(1, 1, keys, 40, device=device), 1.0)
    at = ternary.attention(q, k, v, scale=0.3, bool_scale=2 / keys)
    assert at.eq(keys).all()
    above = ternary.attention(q, k, v, scale=0.3, bool_scale=math.nextafter(2 / keys, 3))
    assert above.eq(0).all()


def test_queries_without_keys_give_zero(device):
    q, k = (TernaryTensor.from_float(torch.randn(1, 2, 6, 40, device=device), 1.0) for _ in "qk")
    v = TernaryTensor.from_columns(torch.randn(1, 2, 6, 40, device=device), 1.0)
    scales = {"scale": 0.1, "bool_scale": 0.1}
    mask = torch.zeros(1, 6, dtype=torch.bool, device=device)
    assert ternary.attention(q, k, v, mask=mask, **scales).eq(0).all()
    assert ternary.attention(q, k, v, mask=ternary.pack_mask(mask), **scales).eq(0).all()
    mask[0, 3:] = True
    out = ternary.attention(q, k, v, mask=mask, causal=True, **scales)
    assert out[:, :, :3].eq(0).all()
    assert out[:, :, 3:].ne(0).any()
    empty = TernaryTensor.from_float(torch.randn(1, 2, 0, 40, device=device), 1.0)
    columns = TernaryTensor.from_columns(torch.randn(1, 2, 0, 40, device=device), 1.0)
    out = ternary.attention(q, empty, columns, **scales)
    assert out.shape == (1, 2, 6, 40)
    assert out.eq(0).all()
    assert ternary.attention(empty, k, v, **scales).shape == (1, 2, 0, 40)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_no_batch_is_empty(causal, device):
    q, one = torch.ones(0, 2, 3, 40, device=device), torch.ones((), device=device)
    arguments = q, q, q, one, one, one, 0.3, 0.1, 1.0, None, causal, None
    for attention in (torch.ops.bitgnn.attention_ternary_floats, attention_ternary_floats):
        assert attention(*arguments).shape == q.shape


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_floats_is_that_of_what_they_pack_to(dtype, causal, device):
    torch.manual_seed(1)
    # Heads side by side in a row, as projections leave them.
    q, k, v = (torch.randn(2, 9, 4, 40, device=device).to(dtype).transpose(1, 2) for _ in "qkv")
    k, v, mask = k[:, :2], v[:, :2], torch.rand(2, 9, device=device) < 0.8
    numbers = {"scale": 0.2, "bool_scale": 0.15, "out_scale": 0.3, "causal": causal, "mask": mask}
    packed = (
        TernaryTensor.from_float(q, 0.7),
        TernaryTensor.from_float(k, 0.9),
        TernaryTensor.from_columns(v, 1.1),
    )
    expected = ternary.attention(*packed, **numbers, dtype=dtype)
    out = ternary.attention_floats(q, k, v, 0.7, torch.tensor(0.9, device=device), 1.1, **numbers)
    assert out.dtype == dtype
    assert torch.equal(out, expected)
    assert out.transpose(1, 2).is_contiguous()


class Block(torch.nn.Module):
    """Projections and attention on bits, as a frozen layer runs them."""

    def __init__(self) -> None:
        super().__init__()
        drawn = weights(3 * 64, 64)
        self.register_buffer("words", drawn.words)
        self.register_buffer("scale", torch.tensor(0.8))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        w = BitTensor(self.words, 64)
        qkv = ternary.linear(x, w, self.scale).unflatten(-1, (3, 2, 32))
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        out = ternary.attention(
            TernaryTensor.from_float(q, self.scale),
            TernaryTensor.from_float(k, 0.5),
            TernaryTensor.from_columns(v, self.scale),
            scale=0.1,
            bool_scale=0.2,
            mask=mask,
            causal=True,
        )
        bits = BooleanTensor.from_float(out, 1.0)
        scores = ternary.matmul(bits, TernaryTensor.from_float(k, 1.0))
        rows = TernaryTensor.from_float(out.transpose(1, 2).flatten(2).flatten(0, 1), 0.5)
        return bmm.tbf(rows, BitTensor(self.words[:32], 64)).sum() + scores.sum()


def test_compile_whole_graph():
    torch.manual_seed(0)
    block = Block()
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    for length in (9, 17, 40):  # compiled for the first length, and then for any
        x, mask = torch.randn(2, length, 64), torch.rand(2, length) < 0.8
        torch.testing.assert_close(compiled(x, mask), block(x, mask))


def test_export():
    torch.manual_seed(0)
    block = Block()
    x, mask = torch.randn(2, 40, 64), torch.rand(2, 40) < 0.8
    # Words of up to 32 keys are one, and sizes of 1 are fixed when a program is traced.
    length = torch.export.Dim("length", min=33, max=2048)
    program = torch.export.export(
        block, (x, mask), dynamic_shapes={"x": {1: length}, "mask": {1: length}}
    )
    x, mask = torch.randn(2, 100, 64), torch.rand(2, 100) < 0.8
    torch.testing.assert_close(program.module()(x, mask), block(x, mask))


def test_compiled_graphs_check_scales():
    compiled = torch.compile(
        lambda x, s: TernaryTensor.from_float(x, s).to_float(), fullgraph=True, backend="aot_eager"
    )
    x = torch.randn(4, 40)
    assert torch.equal(compiled(x, torch.tensor(1.0)), compiled(x, torch.tensor(1.0)))
    with pytest.raises((RuntimeError, ValueError), match="scale must be positive and finite"):
        compiled(x, torch.tensor(0.0))


def graph(rows: int, columns: int, edges: int, device: torch.device) -> BitAdjacency:
    edge_index = torch.stack([torch.randint(columns, (edges,)), torch.randint(rows, (edges,))])
    return BitAdjacency.from_edge_index(
        edge_index, (rows, columns), normalize="mean", coalesce=True
    ).to(device)


@pytest.mark.parametrize("layout", [None, "csr", "sliced", "frdc"])
@pytest.mark.parametrize("size", [1, 33, 64, 200])
def test_aggregation(layout, size, device):
    adjacency = graph(30, 20, 150, device)
    x = TernaryTensor.from_float(torch.randn(20, size, device=device), 0.9)
    pattern = torch.zeros(30, 20, device=device)
    for i in range(30):
        pattern[i, adjacency.indices[adjacency.rowptr[i] : adjacency.rowptr[i + 1]].long()] = 1
    values = x.to_float() / 0.9
    sums = bspmm.tbf(x, adjacency, integer=True, layout=layout)
    assert torch.equal(sums, (pattern @ values).round().int())
    bias, threshold = torch.randn(2, size, device=device)
    expected = (adjacency.row_scale * x.scale).unsqueeze(1) * sums + bias
    assert torch.equal(bspmm.tbf(x, adjacency, bias=bias, layout=layout), expected)
    assert torch.equal(bspmm.tbb(x, adjacency, layout=layout).to_float() > 0, sums >= 0)
    compared = bspmm.tbb(x, adjacency, threshold=threshold, layout=layout)
    scaled = (adjacency.row_scale * x.scale).unsqueeze(1) * sums
    assert torch.equal(compared.to_float() > 0, scaled >= threshold)
    x.scale = None
    plain = BitAdjacency(adjacency.rowptr, adjacency.indices, 20)
    assert torch.equal(bspmm.tbf(x, plain, layout=layout), sums.float())
