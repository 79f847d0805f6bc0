"""Wrong arguments raise one clear error that names function, argument, found and expected."""

import torch
from wrong_calls import check_wrong_calls

from bitgnn import BitAdjacency, BitTensor, ops

X = torch.ones(6, 40)
W = torch.ones(5, 40)
XB, WB = BitTensor.from_float(X), BitTensor.from_float(W)
ADJACENCY = BitAdjacency.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 6)
MATRIX = torch.eye(6).to_sparse_csr()
NAN = torch.full((6, 40), float("nan"))

WRONG = r"""
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
bspmm.fff(X, ADJACENCY)
    -> TypeError: bspmm.fff: adjacency must be a torch sparse CSR or COO.*got BitAdjacency
bspmm.bff(XB, torch.eye(6)) -> TypeError: bspmm.bff: adjacency must be a torch sparse
bspmm.fff(X, torch.eye(6).int().to_sparse_csr())
    -> TypeError: adjacency must hold floats, got torch.int32
bspmm.bbb(WB, ADJACENCY)
    -> ValueError: bspmm.bbb: adjacency must have 5 columns like the rows of x, got 6
bspmm.bfb(WB, MATRIX)
    -> ValueError: bspmm.bfb: adjacency must have 5 columns like the rows of x, got 6
bspmm.bbb(XB, ADJACENCY, layout="coo")
    -> ValueError: layout must be None or one of \['csr', 'sliced', 'frdc'\], got 'coo'
bspmm.bbf(XB, ADJACENCY, layout="csr", method="if_else")
    -> ValueError: method must be None or one of \['carry_save'\] with layout 'csr', got 'if_else';
        valid
bspmm.bbf(XB, ADJACENCY, method="xor") -> ValueError: bspmm.bbf: method must be .* got 'xor'
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
"""


def test_error():
    check_wrong_calls(WRONG, globals() | vars(ops) | vars(ops.pack))
