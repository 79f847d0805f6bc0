"""Wrong arguments raise one clear error that names function, argument, found and expected."""

import pytest
import torch

from bitgnn import BitAdjacency, BitTensor
from bitgnn.ops import add, bmm, bspmm, concat
from bitgnn.ops.pack import pack, pack_standardized, unpack

X = torch.ones(6, 40)
W = torch.ones(5, 40)
XB, WB = BitTensor.from_float(X), BitTensor.from_float(W)
ADJACENCY = BitAdjacency.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 6)
MATRIX = torch.eye(6).to_sparse_csr()
NAN = torch.full((6, 40), float("nan"))

CASES = {
    "pack: x type": (lambda: pack([1.0]), TypeError, "pack: x must be a dense floating.*got list"),
    "pack: x dtype": (lambda: pack(X.int()), TypeError, "pack: x .*got torch.int32"),
    "pack: x shape": (lambda: pack(X[0]), ValueError, r"pack: x must have two dim.*got .*\[40\]"),
    "pack: x finite": (lambda: pack(NAN, check_finite=True), ValueError, "x must be finite"),
    "pack: threshold": (lambda: pack(X, threshold=X[0, :3]), ValueError, r"\[40\], got \[3\]"),
    "pack: scale": (lambda: pack(X, scale="max"), ValueError, "scale must be None or 'mean', got"),
    "pack: gain": (lambda: pack(X, gain=X[0]), ValueError, "gain must be None without scale"),
    "pack_standardized: dtype": (
        lambda: pack_standardized(X.int()),
        TypeError,
        "pack_standardized: x .*got torch.int32",
    ),
    "pack_standardized: scale": (
        lambda: pack_standardized(X, scale="max"),
        ValueError,
        "must be None or 'mean', got 'max'",
    ),
    "unpack": (lambda: unpack(X), TypeError, "unpack: x must be a BitTensor, got torch.float32"),
    "features": (
        lambda: bmm.fbb(torch.ones(2, 1433), BitTensor.from_float(torch.ones(3, 1432))),
        ValueError,
        "bmm.fbb: w must hold 1433 features like x, got 1432",
    ),
    "integer x": (lambda: bmm.fbf(X.long(), WB), TypeError, "bmm.fbf: x .*got torch.int64"),
    "integer w": (lambda: bmm.bff(XB, W.int()), TypeError, "bmm.bff: w .*got torch.int32"),
    "float for bits": (lambda: bmm.bbf(X, WB), TypeError, "bmm.bbf: x must be a BitTensor"),
    "bits for float": (lambda: bmm.ffb(X, WB), TypeError, "bmm.ffb: w .*got BitTensor"),
    "bias length": (lambda: bmm.bbf(XB, WB, bias=X[0]), ValueError, r"bias .*\[5\], got \[40\]"),
    "bias dtype": (
        lambda: bmm.bbb(XB, WB, bias=torch.ones(5).double()),
        TypeError,
        "bmm.bbb: bias must be a torch.float32 tensor, got torch.float64",
    ),
    "flip dtype": (
        lambda: bmm.bfb(XB, W, flip=torch.ones(5)),
        TypeError,
        "bmm.bfb: flip must be a torch.bool tensor",
    ),
    "threshold rank": (
        lambda: bmm.ffb(X, W, threshold=torch.ones(1, 5)),
        ValueError,
        r"bmm.ffb: threshold must have shape \[5\], got \[1, 5\]",
    ),
    "x_gain length": (
        lambda: bmm.fbb(X, WB, x_gain=torch.ones(5)),
        ValueError,
        r"bmm.fbb: x_gain must have shape \[40\]",
    ),
    "integer with bias": (
        lambda: bmm.bbf(XB, WB, bias=torch.ones(5), integer=True),
        ValueError,
        "bmm.bbf: bias must be None with integer=True",
    ),
    "bmm device": (
        lambda: bmm.fbf(X.to("meta"), WB),
        ValueError,
        "bmm.fbf: w must be on meta like the first operand, got cpu",
    ),
    "bmm finite": (
        lambda: bmm.fbb(NAN, WB, check_finite=True),
        ValueError,
        "bmm.fbb: x must be finite",
    ),
    "w finite": (
        lambda: bmm.bff(XB, NAN, check_finite=True),
        ValueError,
        "bmm.bff: w must be finite",
    ),
    "adjacency type": (
        lambda: bspmm.bbf(XB, MATRIX),
        TypeError,
        "bspmm.bbf: adjacency must be a BitAdjacency",
    ),
    "pattern for float": (
        lambda: bspmm.fff(X, ADJACENCY),
        TypeError,
        "bspmm.fff: adjacency must be a torch sparse CSR or COO.*got BitAdjacency",
    ),
    "dense adjacency": (
        lambda: bspmm.bff(XB, torch.eye(6)),
        TypeError,
        "bspmm.bff: adjacency must be a torch sparse",
    ),
    "integer matrix": (
        lambda: bspmm.fff(X, torch.eye(6).int().to_sparse_csr()),
        TypeError,
        "adjacency must hold floats, got torch.int32",
    ),
    "pattern columns": (
        lambda: bspmm.bbb(WB, ADJACENCY),
        ValueError,
        "bspmm.bbb: adjacency must have 5 columns like the rows of x, got 6",
    ),
    "matrix columns": (
        lambda: bspmm.bfb(WB, MATRIX),
        ValueError,
        "bspmm.bfb: adjacency must have 5 columns like the rows of x, got 6",
    ),
    "layout": (
        lambda: bspmm.bbb(XB, ADJACENCY, layout="coo"),
        ValueError,
        r"layout must be None or one of \['csr', 'sliced', 'frdc'\], got 'coo'",
    ),
    "method": (
        lambda: bspmm.bbf(XB, ADJACENCY, layout="csr", method="if_else"),
        ValueError,
        r"method must be None or one of \['carry_save'\] with layout 'csr', got 'if_else'; valid",
    ),
    "unknown method": (
        lambda: bspmm.bbf(XB, ADJACENCY, method="xor"),
        ValueError,
        "bspmm.bbf: method must be .* got 'xor'",
    ),
    "bspmm integer x": (
        lambda: bspmm.fbf(X.int(), ADJACENCY),
        TypeError,
        "bspmm.fbf: x .*got torch.int32",
    ),
    "bspmm finite": (
        lambda: bspmm.fbb(NAN, ADJACENCY, check_finite=True),
        ValueError,
        "bspmm.fbb: x must be finite",
    ),
    "bspmm bias": (
        lambda: bspmm.bbf(XB, ADJACENCY, bias=torch.ones(6)),
        ValueError,
        r"bspmm.bbf: bias must have shape \[40\], got \[6\]",
    ),
    "bspmm device": (
        lambda: bspmm.fbf(X.to("meta"), ADJACENCY),
        ValueError,
        "bspmm.fbf: adjacency must be on meta",
    ),
    "add shape": (lambda: add.bbb(XB, WB), ValueError, r"add.bbb: b must have shape \[6, 40\]"),
    "add type": (lambda: add.ffb(X, XB), TypeError, "add.ffb: b .*got BitTensor"),
    "concat rows": (lambda: concat.ffb(X, W), ValueError, "concat.ffb: b must have 6 rows like a"),
    "concat threshold": (
        lambda: concat.ffb(X, X, threshold=X[0]),
        ValueError,
        r"concat.ffb: threshold must have shape \[80\], got \[40\]",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_error(case):
    call, error, message = CASES[case]
    with pytest.raises(error, match=message):
        call()
