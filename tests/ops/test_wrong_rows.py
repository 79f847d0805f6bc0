"""Wrong arguments of operators on rows raise one clear error that names what is wrong."""

import math

import pytest
import torch
from wrong_calls import check_wrong_calls

from bitgnn import BitAdjacency, BitTensor, TernaryTensor, ops
from bitgnn.ops import bmm, bspmm, linear, ternary

OPS = torch.ops.bitgnn
X, W = torch.ones(6, 40), torch.ones(5, 40)
XB, WB = BitTensor.from_float(X), BitTensor.from_float(W)
ADJACENCY = BitAdjacency.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 6)
NARROW = BitAdjacency.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 5)
MATRIX = torch.eye(6).to_sparse_csr()
NAN = torch.full((6, 40), math.nan)
DIGITS, STEP = linear.weight_digits(W)
T = TernaryTensor.from_float(X, 1.0)
FLOATS = torch.ones(2, 4, 6, 40)
HEADS, PAIR, THREE = (TernaryTensor.from_float(FLOATS[:, :n], 1.0) for n in (4, 2, 3))
COLUMNS = TernaryTensor.from_columns(FLOATS, 1.0)
ONE, SMALL, ROWS = torch.tensor(1.0), torch.ones(3, 4), torch.ones(4, 40)


def attend_floats(q=FLOATS, k=FLOATS, v=FLOATS, q_scale=1.0, k_scale=1.0, **changed):
    numbers = {"scale": 0.1, "bool_scale": 0.1} | changed
    return ternary.attention_floats(q, k, v, q_scale, k_scale, 1.0, **numbers)


def attend(q=HEADS, k=HEADS, v=COLUMNS, **changed):
    return ternary.attention(q, k, v, **({"scale": 0.1, "bool_scale": 0.1} | changed))


WRONG = {
    "products": r"""
pack([1.0]) -> TypeError: pack: x must be a dense floating.*got list
pack(X.int()) -> TypeError: pack: x .*got torch.int32
pack(X[0]) -> ValueError: pack: x must have two dim.*got .*\[40\]
pack(NAN, check_finite=True) -> ValueError: x must be finite
pack(X, threshold=X[0, :3]) -> ValueError: \[40\], got \[3\]
pack(X, scale="max") -> ValueError: scale must be None or 'mean', got
pack(X, gain=X[0]) -> ValueError: gain must be None without scale
pack_standardized(X.int()) -> TypeError: pack_standardized: x .*got torch.int32
pack_standardized(X, scale="max") -> ValueError: must be None or 'mean', got 'max'
unpack(X) -> TypeError: unpack: x must be a BitTensor, got torch.float32
bmm.fbb(torch.ones(2, 1433), BitTensor.from_float(torch.ones(3, 1432)))
    -> ValueError: bmm.fbb: w must hold 1433 features like x, got 1432
bmm.fbf(X.long(), WB) -> TypeError: bmm.fbf: x .*got torch.int64
bmm.bff(XB, W.int()) -> TypeError: bmm.bff: w .*got torch.int32
bmm.bbf(X, WB) -> TypeError: bmm.bbf: x must be a BitTensor
bmm.ffb(X, WB) -> TypeError: bmm.ffb: w .*got BitTensor
bmm.bbf(XB, WB, bias=X[0]) -> ValueError: bias .*\[5\], got \[40\]
bmm.bbb(XB, WB, bias=torch.ones(5).double())
    -> TypeError: bmm.bbb: bias must be a torch.float32 tensor, got torch.float64
bmm.bfb(XB, W, flip=torch.ones(5)) -> TypeError: bmm.bfb: flip must be a torch.bool tensor
bmm.ffb(X, W, threshold=torch.ones(1, 5))
    -> ValueError: bmm.ffb: threshold must have shape \[5\], got \[1, 5\]
bmm.fbb(X, WB, x_gain=torch.ones(5)) -> ValueError: bmm.fbb: x_gain must have shape \[40\]
bmm.bbf(XB, WB, bias=torch.ones(5), integer=True)
    -> ValueError: bmm.bbf: bias must be None with integer=True
bmm.fbf(X.to("meta"), WB) -> ValueError: bmm.fbf: w must be on meta like the first operand, got cpu
bmm.fbb(NAN, WB, check_finite=True) -> ValueError: bmm.fbb: x must be finite
bmm.bff(XB, NAN, check_finite=True) -> ValueError: bmm.bff: w must be finite
bspmm.bbf(XB, MATRIX) -> TypeError: bspmm.bbf: adjacency must be a BitAdjacency
bspmm.fff(X, torch.eye(6))
    -> TypeError: bspmm.fff: adjacency must be a torch sparse CSR or COO.*or a BitAdjacency
bspmm.bff(XB, torch.eye(6)) -> TypeError: bspmm.bff: adjacency must be a torch sparse
bspmm.fff(X, torch.eye(6).int().to_sparse_csr())
    -> TypeError: adjacency must hold floats, got torch.int32
bspmm.bbb(WB, ADJACENCY)
    -> ValueError: bspmm.bbb: adjacency must have 5 columns like the rows of x, got 6
bspmm.bfb(WB, MATRIX)
    -> ValueError: bspmm.bfb: adjacency must have 5 columns like the rows of x, got 6
bspmm.bbb(XB, ADJACENCY, layout="coo")
    -> ValueError: layout must be None or one of \['csr', 'sliced', 'frdc'\], got 'coo'
bspmm.fbf(X.int(), ADJACENCY) -> TypeError: bspmm.fbf: x .*got torch.int32
bspmm.fbb(NAN, ADJACENCY, check_finite=True) -> ValueError: bspmm.fbb: x must be finite
bspmm.bbf(XB, ADJACENCY, bias=torch.ones(6))
    -> ValueError: bspmm.bbf: bias must have shape \[40\], got \[6\]
bspmm.fbf(X.to("meta"), ADJACENCY) -> ValueError: bspmm.fbf: adjacency must be on meta
add.bbb(XB, WB) -> ValueError: add.bbb: b must have shape \[6, 40\]
add.ffb(X, XB) -> TypeError: add.ffb: b .*got BitTensor
concat.ffb(X, W) -> ValueError: concat.ffb: b must have 6 rows like a
concat.ffb(X, X, threshold=X[0])
    -> ValueError: concat.ffb: threshold must have shape \[80\], got \[40\]
""",
    "fused": r"""
fused.bmm_add(X, WB, torch.ones(6, 4))
    -> ValueError: fused.bmm_add: addend must have shape \[6, 5\], got \[6, 4\]
fused.bmm_add_bits(X, WB, torch.ones(6, 5).double())
    -> TypeError: fused.bmm_add_bits: addend must be a torch.float32 tensor, got torch.float64
fused.bmm_bspmm(X, WB, ADJACENCY, hidden="b")
    -> ValueError: fused.bmm_bspmm: hidden must be 'B' or 'F' or 'I', got 'b'
fused.bmm_bspmm(BitTensor.from_float(X), WB, ADJACENCY, x_threshold=X[0])
    -> ValueError: x_threshold and x_gain must be None with packed x
fused.bmm_bspmm_bits(X[:, :3], WB, ADJACENCY) -> ValueError: w must hold 3 features
fused.bmm_bspmm_bits(X[:3], WB, ADJACENCY) -> ValueError: adjacency must have 3 columns
OPS.bmm_add(X, WB.words, torch.ones(6, 5), 40, torch.ones(6))
    -> RuntimeError: bmm_add: x_scale must be left out with float x
OPS.bmm_bspmm(X, WB.words, 40, ADJACENCY.rowptr, ADJACENCY.indices, col=torch.ones(6))
    -> RuntimeError: bmm_bspmm: col must be left out with hidden_bits=True
""",
    "linear": r"""
weight_digits(torch.full((2, 3), float("nan"))) -> ValueError: must be finite
weight_digits(torch.ones(3)) -> ValueError: weight must be \[M, K\]
bits_linear(XB, DIGITS[:, :, :1], STEP)
    -> ValueError: digits must have shape \[3, 5, 2, 8, 4\], got \[3, 5, 1, 8, 4\]
bits_linear(XB, DIGITS.int(), STEP)
    -> TypeError: digits must be a torch.int8 tensor, got torch.int32
bits_linear(XB, DIGITS, STEP.unsqueeze(0)) -> ValueError: step must have shape
bits_linear(XB, DIGITS, STEP, bias=torch.ones(4)) -> ValueError: bias .*\[5\], got \[4\]
bits_linear(XB, DIGITS, STEP, addend=torch.ones(6, 4))
    -> ValueError: addend must have shape \[6, 5\], got \[6, 4\]
bits_linear(BitTensor.from_float(torch.ones(1, MOST_FEATURES + 1)), DIGITS, STEP)
    -> ValueError: at most \d+ features
""",
    "ternary": r"""
ternary.linear(X.double(), WB, 1.0) -> TypeError: must be float32.*float64
ternary.linear(X[:, :9], WB, 1.0) -> ValueError: \[\.\.\., 40\] like w, got
ternary.linear(X, X, 1.0) -> TypeError: w must be a BitTensor
ternary.linear(X, WB, 0.0) -> ValueError: scale must be positive.*got 0
ternary.linear(X, WB, float("nan")) -> ValueError: positive and finite, got nan
ternary.linear(X, WB, 1.0, activation="relu")
    -> ValueError: activation must be one of \('ternary', 'bool'\), got 'relu'
ternary.linear(X, WB, 1.0, dtype=torch.int8) -> ValueError: got torch.int8
ternary.linear(X, WB, 1.0, bias=X[0]) -> ValueError: bias .*\[5\], got \[40\]
ternary.linear(X, WB, 1.0, w_scale=X[0]) -> ValueError: w_scale must have shape \[5\], got \[40\]
ternary.linear(X, WB, 1.0, bias=torch.ones(5), dtype=torch.int32)
    -> ValueError: w_scale and bias must be None with dtype int32
bmm.tbf(WB, WB) -> TypeError: bmm.tbf: x must be a TernaryTensor, got BitT
bmm.tbf(HEADS, WB) -> ValueError: bmm.tbf: x must have two dimensions
bmm.tbf(T, WB, integer=True, bias=torch.ones(5)) -> ValueError: bias must be None with integer
bmm.tbb(T, BitTensor.from_float(X[:, :9]))
    -> ValueError: bmm.tbb: w must hold 40 features like x, got 9
bspmm.tbf(WB, ADJACENCY) -> TypeError: bspmm.tbf: x must be a TernaryTensor
bspmm.tbb(T, X) -> TypeError: bspmm.tbb: adjacency must be a BitAdj
bspmm.tbb(T, NARROW) -> ValueError: must have 6 columns like the rows
bspmm.tbb(T, ADJACENCY, threshold=X[0, :3])
    -> ValueError: threshold must have shape \[40\], got \[3\]
bspmm.tbf(T, ADJACENCY, bias=X[0], integer=True) -> ValueError: bias must be None with integer
ternary.matmul(X, T) -> TypeError: x must be a TernaryTensor or Boolean
ternary.matmul(T, X) -> TypeError: y must be a TernaryTensor, got torch
ternary.matmul(HEADS, T) -> ValueError: y must have shape \[2, 4, 'M', 40\] like x, got \[6, 40\]
ternary.matmul(T, T, dtype=torch.int64) -> ValueError: got torch.int64
attend(q=T) -> ValueError: q must have four dimensions, got shape \[6, 40\]
attend(k=PAIR.to_float()) -> TypeError: k must be a TernaryTensor
attend(k=THREE) -> ValueError: must divide the 4 heads of q, got 3
attend(v=HEADS) -> ValueError: \[2, 4, 40, 6\] like k transposed, got \[2, 4, 6
attend(scale=-1.0) -> ValueError: attention: scale must be positive
attend(bool_scale=0) -> ValueError: bool_scale must be positive
attend(out_scale=float("inf")) -> ValueError: out_scale must be pos
attend(scale=torch.tensor(1.0)) -> TypeError: scale must be a number, got torch.float32 Tensor
attend(mask=torch.ones(2, 6)) -> TypeError: mask must be a bool tensor, got torch.float32
attend(mask=torch.ones(2, 7, dtype=torch.bool))
    -> ValueError: mask must have shape \[2, 6\], got \[2, 7\]
attend_floats(q=HEADS) -> TypeError: q must be float32, float16 or bf
attend_floats(k=FLOATS.double()) -> TypeError: k must be.*float64
attend_floats(v=FLOATS[0])
    -> ValueError: attention_floats: v must have four dimensions, got shape \[4, 6, 40\]
attend_floats(k=FLOATS[..., :39])
    -> ValueError: k must have shape \[2, G, L, 40\] like q, got \[2, 4, 6, 39\]
attend_floats(k=FLOATS[:, :3]) -> ValueError: divide the 4.*got 3
attend_floats(v=FLOATS[:, :, :5])
    -> ValueError: v must have shape \[2, 4, 6, 40\] like k, got \[2, 4, 5, 40\]
attend_floats(q_scale=0.0) -> ValueError: q_scale must be positive
attend_floats(scale=0.0) -> ValueError: floats: scale must be pos
attend_floats(mask=torch.ones(2, 7, dtype=torch.bool))
    -> ValueError: mask must have shape \[2, 6\], got \[2, 7\]
attend(dtype=torch.int32) -> ValueError: got torch.int32
OPS.matmul_ttf(T.words, T.counts, T.words, T.counts, 40, torch.tensor(-1.0))
    -> RuntimeError: scale must be positive and finite, got -1
OPS.matmul_ttf(T.words, T.counts, T.words, T.counts, 40, None, None, torch.tensor(-1.0))
    -> RuntimeError: k_scale must be positive and finite, got -1
OPS.matmul_ttf(T.words, T.counts, T.words, T.counts, 40, None, torch.int32, torch.tensor(1.0))
    -> RuntimeError: scale and k_scale must be left out
OPS.linear_ternary(X, WB.words, 40, torch.tensor(1.0), torch.ones(5), None, torch.int32)
    -> RuntimeError: dtype int32 gives the bare dot product
OPS.bmm_tbf(T.words, T.counts, WB.words, 40, None, None, None, torch.float64)
    -> RuntimeError: dtype must be float32, float16, bfloat16 or int32, got Double
OPS.matmul_ttf(HEADS.words, HEADS.counts, PAIR.words, PAIR.counts, 40)
    -> RuntimeError: k must have the leading dimensions of q
""",
    "training": r"""
OPS.round_levels(SMALL.half(), ONE, -1, 1) -> Exception: round_levels: x must .*[Ff]loat
OPS.round_levels(SMALL, ONE, -1, 0) -> Exception: round_levels: highest must be in
OPS.round_levels(SMALL, ONE, 1, 1) -> Exception: round_levels: lowest must be in
OPS.clip_gradients(SMALL[:2], SMALL, ONE, -1, 1)
    -> Exception: clip_gradients: grad must have the shape of x
OPS.scale_sums(ONE, ONE, ONE) -> Exception: scale_sums: sums must have a dimension
""",
    "looked up": r"""
OPS.fold_weight(ROWS.half(), ONE, 1.0, True) -> Exception: fold_weight: weight must .*[Ff]loat
OPS.fold_weight(ROWS, ONE, 1.0, True, None, torch.ones(3))
    -> Exception: fold_weight: log_gain must .*divides 4, got 3
""",
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_arguments_are_named(kind):
    check_wrong_calls(WRONG[kind], vars(ops) | vars(ops.linear) | vars(ops.pack) | globals())


@pytest.mark.cuda
def test_operands_must_be_on_one_device():
    x, w = X.cuda(), BitTensor.from_float(torch.ones(5, 40, device="cuda"))
    rows, one = TernaryTensor.from_float(x, 1.0), torch.tensor(1.0)
    cases = {
        "w must be on cuda:0": lambda: ternary.linear(x, WB, 1.0),
        "scale must be on cuda:0": lambda: ternary.linear(x, w, one),
        "x: scale must be on cuda:0": lambda: TernaryTensor.from_float(x, one),
        "bias must be on cuda:0": lambda: ternary.linear(x, w, 1.0, bias=torch.ones(5)),
        "y must be on cpu": lambda: ternary.matmul(T, rows),
        "bmm.tbf: w must be on cuda:0": lambda: bmm.tbf(rows, WB),
        "bspmm.tbf: adjacency must be on cuda:0": lambda: bspmm.tbf(rows, ADJACENCY),
        "k must be on cuda:0": lambda: attend(q=HEADS.to("cuda")),
    }
    for match, function in cases.items():
        with pytest.raises(ValueError, match=match.removeprefix("x: ")):
            function()


def test_numbers_as_scales_are_told_from_what_equals_them():
    expected = ternary.linear(X, WB, 1.0)
    assert ternary.linear(X, WB, 1).equal(expected)
    for scale in (True, [1.0]):
        with pytest.raises(TypeError, match="scale must be a number or a tensor"):
            ternary.linear(X, WB, scale)
    for scale in (torch.tensor(-1.0), torch.tensor(float("nan"))):
        with pytest.raises(ValueError, match=r"ternary.linear: scale must be positive and finite"):
            ternary.linear(X, WB, scale)
    with pytest.raises(ValueError, match=r"scale must have no dimensions, got shape \[1\]"):
        ternary.linear(X, WB, torch.ones(1))
    with pytest.raises(TypeError, match=r"scale must be a float32 tensor, got torch.float64"):
        ternary.linear(X, WB, torch.tensor(1.0, dtype=torch.float64))
    with pytest.raises(ValueError, match="scale must be on cpu, got meta"):
        ternary.linear(X, WB, torch.tensor(1.0, device="meta"))
