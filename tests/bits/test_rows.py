"""Packed tensors as torch tensors: rows, joins, copies, pickles, values and functions of torch."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader
from wrong_calls import check_wrong_calls

import bitgnn
from bitgnn import BitTensor, TernaryTensor
from bitgnn.bits import BitFeatures, BitImages, BooleanTensor, Int8Features, Int8Tensor

INDICES = [
    slice(1, 4),
    slice(None, None, 2),
    slice(3, 1),
    torch.tensor([4, 0, 0, -1]),
    torch.tensor([2], dtype=torch.int32),
    torch.tensor([], dtype=torch.int64),
    torch.tensor([True, False, True, True, False]),
    [1, -2],
    [],
    np.array([3, 3]),
    range(2),
]


def bits(rows, size, scale=None):
    return BitTensor.from_float(torch.randn(rows, size), scale=scale)


def packed(kind, rows=5, size=33):
    if kind is BitImages:
        return BitImages.from_float(torch.randn(rows, size, 2, 3), scale="mean")
    if kind in (TernaryTensor, BooleanTensor):
        return kind.from_float(torch.randn(rows, size), 0.5)
    if kind in (Int8Tensor, Int8Features):
        centre, step = torch.linspace(-1, 1, size), torch.linspace(0, 0.5, size)
        made = Int8Tensor.from_float(torch.randn(rows, size), centre, step)
        return made if kind is Int8Tensor else made.as_features()
    made = bits(rows, size, "mean")
    return made.as_features() if kind is BitFeatures else made


KINDS = [
    BitTensor,
    BitFeatures,
    BitImages,
    TernaryTensor,
    BooleanTensor,
    Int8Tensor,
    Int8Features,
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", range(len(INDICES)))
def test_rows_are_those_of_the_values(kind, place):
    x, index = packed(kind), INDICES[place]
    found = x[index]
    assert type(found) is kind
    assert torch.equal(found.to_float(), x.to_float()[index])
    assert len(found) == found.shape[0] == found.to_float().size(0)


@pytest.mark.parametrize("kind", KINDS)
def test_integers_slices_and_narrow_are_views(kind):
    x = packed(kind)
    for view in (x[2], x[-3], x[torch.tensor(2)], x[2:4], x.narrow(0, 2, 1)):
        assert view._packed.data_ptr() == x._packed[2].data_ptr()
    assert torch.equal(x[2].to_float(), x.to_float()[2])
    assert x[2].shape == x.to_float()[2].shape
    assert [row.tolist() for row in x] == x.tolist()
    with pytest.raises(TypeError, match="a single row of features has no length"):
        len(bits(2, 3)[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 31, 33])
def test_cat_stack_and_index_select(kind, size):
    parts = [packed(kind, rows, size) for rows in (3, 0, 2)]
    whole = torch.cat([part.to_float() for part in parts])
    for joined in (bitgnn.cat(parts), torch.cat(parts), torch.concat(parts, dim=0)):
        assert type(joined) is kind
        assert torch.equal(joined.to_float(), whole)
    rows = list(bitgnn.cat(parts))
    for stacked in (bitgnn.stack(rows), torch.stack(rows), torch.stack(rows, dim=0)):
        assert stacked.equal(bitgnn.cat(parts))
    index = torch.tensor([4, 1, 1])
    for found in (joined.index_select(0, index), torch.index_select(joined, 0, index)):
        assert torch.equal(found.to_float(), whole[index])
    assert torch.index_select(input=joined, dim=0, index=index).equal(found)
    target = joined[:3].clone()
    assert torch.index_select(joined, 0, index, out=target) is target
    assert target.equal(found)


@pytest.mark.parametrize("size", [0, 1, 31, 33, 70])
@pytest.mark.parametrize("rows", [0, 1, 4])
def test_ugly_sizes(rows, size):
    for scale in (None, "mean"):
        x = bits(rows, size, scale)
        for held in (x, x.as_features()):
            assert len(held) == rows
            assert torch.cat([held, held]).shape == (2 * rows, size)
            assert held[:0].to_float().shape == (0, size)
            assert held[torch.arange(rows)].equal(x)
            assert repr(held).startswith(f"BitTensor({rows} x {size}, {x.nbytes} bytes")
            assert pickle.loads(pickle.dumps(held)).equal(x)
            assert (held.numel(), held.dim(), held.ndim) == (rows * size, 2, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_copies_moves_and_memory(kind, device):
    x = packed(kind)
    for made in (x.clone(), copy.deepcopy(x), x[::2].contiguous(), torch.clone(x)):
        assert type(made) is kind
        assert made._packed.data_ptr() != x._packed.data_ptr()
        assert made.is_contiguous()
    assert x.clone().equal(x)
    assert (
        x.detach()._packed.data_ptr() == torch.detach(x)._packed.data_ptr() == x._packed.data_ptr()
    )
    moved = x.to(device, non_blocking=True)
    assert moved.device.type == device.type
    assert moved.is_cuda == (device.type == "cuda")
    assert moved.cpu().equal(x)
    assert {part.device.type for part in x.to("meta")._tensors()} == {"meta"}
    assert not x.is_shared()
    shared = x.clone().share_memory_()
    assert shared.is_shared()
    assert shared.equal(x)


@pytest.mark.cuda
@pytest.mark.parametrize("kind", KINDS)
def test_pinned_memory(kind):
    pinned = packed(kind).pin_memory()
    assert pinned.is_pinned()
    moved = pinned.cuda(non_blocking=True)
    moved.record_stream(torch.cuda.current_stream())
    assert moved.cpu().equal(pinned)


@pytest.mark.parametrize("kind", KINDS)
def test_pickles_checkpoints_and_pytrees(kind):
    for x in (packed(kind), packed(kind)[1]):
        assert type(pickle.loads(pickle.dumps(x))) is kind
        assert pickle.loads(pickle.dumps(x)).equal(x)
        file = io.BytesIO()
        torch.save({"x": x}, file)
        file.seek(0)
        assert torch.load(file, weights_only=True)["x"].equal(x)
    leaves, spec = pytree.tree_flatten({"x": x})
    assert all(type(leaf) is torch.Tensor for leaf in leaves)
    assert pytree.tree_unflatten(leaves, spec)["x"].equal(x)
    assert pytree.tree_map(lambda t: t.to("meta"), x).device.type == "meta"
    assert pytree.treespec_loads(pytree.treespec_dumps(spec)) == spec


@pytest.mark.parametrize("kind", [BitTensor, TernaryTensor, BooleanTensor, Int8Tensor])
@pytest.mark.parametrize("size", [0, 1, 16, 31, 33])
def test_safetensors(kind, size):
    x = packed(kind, size=size)
    for rows in (x, x[:0]):
        assert kind.from_tensors(load(save(rows.to_tensors("q."))), "q.").equal(rows)
    if kind is not Int8Tensor:
        x.scale = None
    assert kind.from_tensors(load(save(x.to_tensors()))).equal(x)
    with pytest.raises(ValueError, match=r"must hold \['q.\w+', 'q.\w+'.*\], got"):
        kind.from_tensors(x.to_tensors(), "q.")


def test_a_forged_checkpoint_is_refused():
    forged = bits(3, 40)
    forged.words = torch.full((3, 2), -1, dtype=torch.int32)
    with pytest.raises(ValueError, match="padding bits must be 0"):
        pickle.loads(pickle.dumps(forged))
    forged.words = torch.zeros(3, 1, dtype=torch.int32)
    file = io.BytesIO()
    torch.save(forged, file)
    file.seek(0)
    with pytest.raises(ValueError, match=r"words must have shape \[N, 2\]"):
        torch.load(file, weights_only=True)


@pytest.mark.parametrize("kind", KINDS)
def test_equality(kind):
    x = packed(kind)
    values = x.to_float()
    for other in (x, values):
        assert bool((x == other).all())
        assert not (x != other).any()
    assert torch.equal(x == -values, values == -values)
    assert torch.equal(x[0] == values[0].max().item(), values[0] == values[0].max())
    assert (x == "text") is False
    assert torch.equal(x, x.clone())
    for other in (x[:4], "rows", packed(kind, size=32), packed(kind)):
        assert not x.equal(other)
    if "scale" in kind.FIELDS:
        bare = x.clone()
        bare.scale = None
        assert not x.equal(bare)
    assert len({x, x, x.clone()}) == 2


def test_features_are_their_bits():
    x = packed(BitTensor)
    for held in (x, x.as_features()):
        assert x.equal(held)
        assert bool((x == held).all())
        assert held.numpy().dtype == np.float32
        assert np.array_equal(np.asarray(held), x.to_float().numpy())
        assert np.array(held, dtype=np.float64).dtype == np.float64


@pytest.mark.parametrize("kind", [BitFeatures, Int8Features])
@pytest.mark.parametrize("size", [0, 1, 16, 32, 33])
def test_workers_of_loaders_carry_packed_items(kind, size):
    held = packed(kind, 6, size)
    batches = list(DataLoader(held, batch_size=4, num_workers=1))
    assert all(type(batch) is kind for batch in batches)
    assert all(batch.is_shared() for batch in batches if size)
    assert bitgnn.cat(batches).equal(held)


def test_repr():
    x = torch.tensor([[1.0, -1, 1, -1, 1, 1, 1, 1]] * 5)
    scaled = BitTensor.from_float(2 * x, scale="mean")
    head = "BitTensor(5 x 8, 40 bytes, scaled, device=cpu)"
    assert repr(scaled) == head + "\n[2, -2, 2, -2, 2, 2, ...]" * 3 + "\n..."
    row = "BitTensor(8, 8 bytes, scaled, device=cpu)\n[2, -2, 2, -2, 2, 2, ...]"
    assert repr(scaled[0]) == row
    assert repr(scaled.to("meta")) == head.replace("cpu", "meta")
    assert repr(scaled[:0]) == "BitTensor(0 x 8, 0 bytes, scaled, device=cpu)"
    ternary = TernaryTensor.from_float(torch.randn(4, 3, 33), 0.5)
    assert repr(ternary).startswith("TernaryTensor(4 x 3 x 33, 244 bytes, scaled, device=cpu)\n[")


def test_features_are_tensors_that_operators_read():
    x = packed(BitFeatures)
    weight = bits(7, 33)
    assert isinstance(x, torch.Tensor)
    assert (x.size, x.size(), x.size(0), x.size(-1)) == (33, (5, 33), 5, 33)
    plain = BitTensor(x.words, 33, x.scale)
    assert torch.equal(bitgnn.ops.bmm.bbf(x, weight), bitgnn.ops.bmm.bbf(plain, weight))
    assert type(bitgnn.ops.bmm.bbb(x, weight)) is BitTensor
    assert torch.equal(torch.compile(lambda a: a.to_float(), backend="eager")(x), x.to_float())


X, FEATURES, OTHER = bits(5, 33), packed(BitFeatures), bits(5, 34)
WRONG = r"""
X[5] -> IndexError: BitTensor\[index\]: index must be within 5 rows, got 5
X[-6] -> IndexError: within 5 rows, got -6
X[torch.tensor([0, 5])] -> IndexError: within 5 rows, got 5
X[torch.tensor([0, -6])] -> IndexError: within 5 rows, got -6
X[True] -> TypeError: index must hold int64, int32 or bool, got bool
X[1.0] -> TypeError: index must hold int64, int32 or bool, got float
X[0, 1] -> TypeError: got tuple
X[torch.tensor([0.5])] -> TypeError: got torch.float32 Tensor
X[torch.tensor([0], dtype=torch.uint8)] -> TypeError: got torch.uint8 Tensor
X[torch.tensor([True])] -> ValueError: a mask must have shape \[5\], got \[1\]
X[torch.tensor([[0]])] -> ValueError: index must have shape \[R\], got \[1, 1\]
X[torch.tensor([0], device="meta")] -> ValueError: index must be on cpu, got meta
X[0][0] -> TypeError: features of a row are packed
X.index_select(1, torch.tensor([0])) -> ValueError: dim must be 0, since features are packed, got 1
X.index_select(0, torch.tensor([-1])) -> IndexError: within 5 rows, got -1
X.index_select(0, [0]) -> TypeError: index must be an int64 or int32 tensor, got list
X.index_select(0, torch.tensor([0], device="meta")) -> ValueError: index must be on cpu, got meta
X.narrow(0, 4, 2) -> ValueError: start and length must be within 5 rows, got 4, 2
X.to(torch.float16) -> TypeError: device must be a device, got dtype
bitgnn.cat([]) -> ValueError: cat: tensors must not be empty
bitgnn.cat([X, OTHER]) -> ValueError: tensors\[1\] must have rows of shape \[33\] like the first
bitgnn.cat([X, FEATURES]) -> ValueError: all tensors must have a scale or none of them
bitgnn.cat([X, X.to_float()]) -> TypeError: tensors\[1\] must be a BitTensor like the others
bitgnn.cat([X.to_float(), X]) -> TypeError: tensors\[0\] must be packed like the others
bitgnn.cat([X, X.to("meta")]) -> ValueError: tensors\[1\] must be on cpu like the first, got meta
bitgnn.cat([X, X], dim=1) -> ValueError: dim must be 0, since features are packed, got 1
bitgnn.stack([X, X]) -> ValueError: tensors must be single rows or images of BitTensor, got shape
torch.cat([FEATURES, FEATURES], dim=1) -> ValueError: dim must be 0
torch.add(X, 1) -> TypeError: add: not defined for packed values; call to_float\(\) first
torch.add(FEATURES, 1) -> TypeError: add: not defined for packed values; call to_float\(\) first
FEATURES.float() -> TypeError: not defined for packed values
BitTensor(FEATURES, 33) -> TypeError: words must be an int32 tensor, got torch.int32 BitFeatures
bitgnn.ops.bmm.bbf(X[0], X) -> RuntimeError: x must
"""


def test_wrong_calls():
    check_wrong_calls(WRONG, globals())
