"""Ternary operators say what is wrong with an argument before anything runs."""

import pytest
import torch
from wrong_calls import check_wrong_calls

from bitgnn import BitAdjacency, BitTensor, TernaryTensor
from bitgnn.ops import bmm, bspmm, ternary

X = torch.ones(6, 40)
W = BitTensor.from_float(torch.ones(5, 40))
T = TernaryTensor.from_float(X, 1.0)
HEADS = TernaryTensor.from_float(torch.ones(2, 4, 6, 40), 1.0)
PAIR = TernaryTensor.from_float(torch.ones(2, 2, 6, 40), 1.0)
THREE = TernaryTensor.from_float(torch.ones(2, 3, 6, 40), 1.0)
COLUMNS = TernaryTensor.from_columns(torch.ones(2, 4, 6, 40), 1.0)


GRAPH = BitAdjacency.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 6)
NARROW = BitAdjacency.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 5)


FLOATS = torch.ones(2, 4, 6, 40)


def attend_floats(q=FLOATS, k=FLOATS, v=FLOATS, q_scale=1.0, k_scale=1.0, **changed):
    numbers = {"scale": 0.1, "bool_scale": 0.1} | changed
    return ternary.attention_floats(q, k, v, q_scale, k_scale, 1.0, **numbers)


def attend(q=HEADS, k=HEADS, v=COLUMNS, **changed):
    return ternary.attention(q, k, v, **({"scale": 0.1, "bool_scale": 0.1} | changed))


WRONG = r"""
ternary.linear(X.double(), W, 1.0) -> TypeError: must be float32.*float64
ternary.linear(X[:, :9], W, 1.0) -> ValueError: \[\.\.\., 40\] like w, got
ternary.linear(X, X, 1.0) -> TypeError: w must be a BitTensor
ternary.linear(X, W, 0.0) -> ValueError: scale must be positive.*got 0
ternary.linear(X, W, float("nan")) -> ValueError: positive and finite, got nan
ternary.linear(X, W, 1.0, activation="relu")
    -> ValueError: activation must be one of \('ternary', 'bool'\), got 'relu'
ternary.linear(X, W, 1.0, dtype=torch.int8) -> ValueError: got torch.int8
ternary.linear(X, W, 1.0, bias=X[0]) -> ValueError: bias .*\[5\], got \[40\]
ternary.linear(X, W, 1.0, w_scale=X[0]) -> ValueError: w_scale must have shape \[5\], got \[40\]
ternary.linear(X, W, 1.0, bias=torch.ones(5), dtype=torch.int32)
    -> ValueError: w_scale and bias must be None with dtype int32
bmm.tbf(W, W) -> TypeError: bmm.tbf: x must be a TernaryTensor, got BitT
bmm.tbf(HEADS, W) -> ValueError: bmm.tbf: x must have two dimensions
bmm.tbf(T, W, integer=True, bias=torch.ones(5)) -> ValueError: bias must be None with integer
bmm.tbb(T, BitTensor.from_float(X[:, :9]))
    -> ValueError: bmm.tbb: w must hold 40 features like x, got 9
bspmm.tbf(W, GRAPH) -> TypeError: bspmm.tbf: x must be a TernaryTensor
bspmm.tbb(T, X) -> TypeError: bspmm.tbb: adjacency must be a BitAdj
bspmm.tbb(T, NARROW) -> ValueError: must have 6 columns like the rows
bspmm.tbb(T, GRAPH, threshold=X[0, :3]) -> ValueError: threshold must have shape \[40\], got \[3\]
bspmm.tbf(T, GRAPH, bias=X[0], integer=True) -> ValueError: bias must be None with integer
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
"""


def test_errors():
    check_wrong_calls(WRONG, globals())


@pytest.mark.cuda
def test_operands_must_be_on_one_device():
    x, w = X.cuda(), BitTensor.from_float(torch.ones(5, 40, device="cuda"))
    rows, one = TernaryTensor.from_float(x, 1.0), torch.tensor(1.0)
    cases = {
        "w must be on cuda:0": lambda: ternary.linear(x, W, 1.0),
        "scale must be on cuda:0": lambda: ternary.linear(x, w, one),
        "x: scale must be on cuda:0": lambda: TernaryTensor.from_float(x, one),
        "bias must be on cuda:0": lambda: ternary.linear(x, w, 1.0, bias=torch.ones(5)),
        "y must be on cpu": lambda: ternary.matmul(T, rows),
        "bmm.tbf: w must be on cuda:0": lambda: bmm.tbf(rows, W),
        "bspmm.tbf: adjacency must be on cuda:0": lambda: bspmm.tbf(rows, GRAPH),
        "k must be on cuda:0": lambda: attend(q=HEADS.to("cuda")),
    }
    for match, function in cases.items():
        with pytest.raises(ValueError, match=match.removeprefix("x: ")):
            function()


OPS = torch.ops.bitgnn
RAW = r"""
OPS.bmm_tbf(T.words[:, :1], T.counts, W.words, 40) -> RuntimeError: planes of x must be 2
OPS.bmm_tbf(T.words, T.counts[:3], W.words, 40) -> RuntimeError: entries of counts
OPS.bmm_tbb(T.words, T.counts.float(), W.words, 40) -> RuntimeError: counts must be Int, got Float
OPS.bmm_tbf(T.words, T.counts, W.words, 70) -> RuntimeError: must hold 3 words a row
OPS.bmm_tbf(T.words, T.counts, W.words, 40, torch.ones(1))
    -> RuntimeError: x_scale must have 0 dimensions
OPS.matmul_ttf(T.words, T.counts, T.words, T.counts, 40, torch.tensor(-1.0))
    -> RuntimeError: scale must be positive and finite, got -1
OPS.matmul_ttf(T.words, T.counts, T.words, T.counts, 40, None, None, torch.tensor(-1.0))
    -> RuntimeError: k_scale must be positive and finite, got -1
OPS.matmul_ttf(T.words, T.counts, T.words, T.counts, 40, None, torch.int32, torch.tensor(1.0))
    -> RuntimeError: scale and k_scale must be left out
OPS.linear_ternary(X, W.words, 40, torch.tensor(1.0), torch.ones(5), None, torch.int32)
    -> RuntimeError: dtype int32 gives the bare dot product
OPS.bmm_tbf(T.words, T.counts, W.words, 40, None, None, None, torch.float64)
    -> RuntimeError: dtype must be float32, float16, bfloat16 or int32, got Double
OPS.pack_ternary(X.double(), torch.tensor(1.0)) -> RuntimeError: must be float32, float16
OPS.matmul_ttf(HEADS.words, HEADS.counts, PAIR.words, PAIR.counts, 40)
    -> RuntimeError: k must have the leading dimensions of q
"""


def test_errors_of_operators():
    check_wrong_calls(RAW, globals())


def test_numbers_as_scales_are_told_from_what_equals_them():
    expected = ternary.linear(X, W, 1.0)
    assert ternary.linear(X, W, 1).equal(expected)
    for scale in (True, [1.0]):
        with pytest.raises(TypeError, match="scale must be a number or a tensor"):
            ternary.linear(X, W, scale)
    for scale in (torch.tensor(-1.0), torch.tensor(float("nan"))):
        with pytest.raises(ValueError, match=r"ternary.linear: scale must be positive and finite"):
            ternary.linear(X, W, scale)
    with pytest.raises(ValueError, match=r"scale must have no dimensions, got shape \[1\]"):
        ternary.linear(X, W, torch.ones(1))
    with pytest.raises(TypeError, match=r"scale must be a float32 tensor, got torch.float64"):
        ternary.linear(X, W, torch.tensor(1.0, dtype=torch.float64))
    with pytest.raises(ValueError, match="scale must be on cpu, got meta"):
        ternary.linear(X, W, torch.tensor(1.0, device="meta"))
