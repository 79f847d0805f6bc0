"""Int8Tensor: codes, values, scales and their fingerprint, files, workers, programs and errors."""

import pickle

import numpy as np
import pytest
import torch
from row_processes import double_codes
from wrong_calls import check_wrong_calls

import bitgnn
from bitgnn.bits import Int8Features, Int8Tensor
from bitgnn.bits.int8 import fingerprint_of, inverse_step

SIZES = [0, 1, 15, 16, 17, 33]
NAN, INF = float("nan"), float("inf")


def scales(size, device="cpu"):
    """Columns of very different scale, one in four of them constant."""
    step = 10.0 ** torch.linspace(-6, 4, size)
    step[::4] = 0
    return torch.linspace(-3, 3, size).to(device), step.to(device)


def draw(rows, size):
    """Values around the centres, some of them beyond the codes' reach."""
    centre, step = scales(size)
    return centre + 60 * step * torch.randn(rows, size) + (step == 0) * torch.randn(rows, size)


def rounded(x, centre, step):
    """The definition, in numpy."""
    x, centre, step = (np.asarray(part.cpu().float(), np.float32) for part in (x, centre, step))
    with np.errstate(all="ignore"):
        inverse = np.where(step > 0, np.float32(1) / step, np.float32(0))
        value = (x - centre) * inverse
    return np.nan_to_num(np.clip(np.rint(value), -127, 127), nan=0).astype(np.int8)


def made(rows=5, size=33):
    return Int8Tensor.from_float(draw(rows, size), *scales(size))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rows", [0, 1, 7])
def test_codes_are_those_of_the_definition(rows, size, dtype, device):
    x = draw(rows, size).to(dtype).to(device)
    codes = Int8Tensor.from_float(x, *scales(size, device)).validate()
    width = 16 * -(-size // 16)
    assert codes.shape == x.shape
    assert codes.codes.dtype == torch.int8
    assert codes.codes.shape == (rows, width)
    assert codes.nbytes == rows * width + 8 * size
    assert np.array_equal(codes.codes[:, :size].cpu().numpy(), rounded(x, *scales(size)))
    assert not codes.codes[:, size:].any()


def test_values_are_within_half_a_step():
    x, (centre, step) = draw(200, 40), scales(40)
    x = x.clamp(centre - 127 * step, centre + 127 * step)
    error = (Int8Tensor.from_float(x, centre, step).to_float() - x).abs()
    # Beside the rounding to codes, that of floats of the size of x.
    assert bool((error <= step / 2 + 4e-7 * x.abs()).all())


def test_strides_and_gradients(device):
    x = draw(6, 33).to(device)
    whole = Int8Tensor.from_float(x, *scales(33, device))
    for view in (
        x.t().contiguous().t(),
        torch.stack([x, x], 2)[..., 1],
        x.clone().requires_grad_(),
    ):
        assert Int8Tensor.from_float(view, *scales(33, device)).equal(whole)
    assert Int8Tensor.from_float(x[::2], *scales(33, device)).equal(whole[::2])
    assert Int8Tensor.from_float(x[:1].expand(3, 33), *scales(33, device)).equal(whole[[0, 0, 0]])


def test_rows_keep_the_scales_that_packed_them():
    centre, step = scales(33)
    rows = Int8Tensor.from_float(draw(4, 33), centre, step)
    values, fingerprint = rows.to_float(), rows.fingerprint
    centre.add_(1)
    step.mul_(2)
    assert torch.equal(rows.to_float(), values)
    assert rows.validate().fingerprint == fingerprint
    assert Int8Tensor.from_float(values, centre, step).fingerprint != fingerprint
    rows.centre.add_(1)
    with pytest.raises(ValueError, match="centre and step must be those that packed the rows"):
        rows.validate()


def test_fingerprints_stand_for_scales():
    centre, step = torch.tensor([0.5, -0.0, 3.0]), torch.tensor([0.25, 0.0, 2.0])
    known = fingerprint_of(centre, step)
    # Files keep it, so it must be the same number for ever.
    assert known == 0x656D9ACAB87653DF
    assert fingerprint_of(centre + 0.0, step.clone()) == known
    for changed in (
        (centre.nextafter(step), step),
        (centre, step.nextafter(centre)),
        (step, centre.abs()),
        (centre[:2], step[:2]),
    ):
        assert fingerprint_of(*changed) != known
    rows = Int8Tensor.from_float(torch.randn(4, 3), centre, step)
    assert 0 <= known < 2**63
    for held in (
        rows,
        rows[1:3],
        rows[2],
        rows.to("meta"),
        rows.as_features(),
        rows.as_features()[[1]],
        bitgnn.cat([rows, rows[:0]]),
        Int8Tensor(rows.codes, 3, centre, step),
        pickle.loads(pickle.dumps(rows)),
    ):
        assert held.fingerprint == known


def test_rows_of_another_model_are_refused():
    rows = made()
    rows.check_fingerprint("GCN", rows.fingerprint)
    other = Int8Tensor.from_float(rows.to_float(), rows.centre + 1, rows.step)
    both = f"{other.fingerprint:016x} .*got rows packed by {rows.fingerprint:016x}"
    with pytest.raises(ValueError, match=f"GCN: x must be packed by the scales {both}"):
        rows.check_fingerprint("GCN", other.fingerprint)
    both = f"{rows.fingerprint:016x} like the first, got {other.fingerprint:016x}"
    with pytest.raises(ValueError, match=rf"cat: tensors\[1\] must be .* scales {both}"):
        torch.cat([rows, other])
    with pytest.raises(ValueError, match=rf"stack: tensors\[1\] must be .* scales {both}"):
        torch.stack([rows[0], other[0]])
    with pytest.raises(ValueError, match=both):
        torch.cat([rows.as_features(), other.as_features()])


def test_processes_share_rows():
    x = torch.arange(8.0).view(4, 2)
    rows = Int8Tensor.from_float(x, torch.zeros(2), torch.ones(2)).share_memory_()
    torch.multiprocessing.spawn(double_codes, (rows,))
    assert torch.equal(rows.to_float(), 2 * x)


def test_programs_take_and_return_rows():
    centre, step = scales(33)

    def again(rows):
        return Int8Tensor.from_float(-rows.to_float(), rows.centre, rows.step)

    class Again(torch.nn.Module):
        def forward(self, rows):
            return again(rows)

    rows = Int8Tensor.from_float(draw(4, 33), centre, step)
    expected = again(rows)
    for held in (rows, rows.as_features()):
        found = torch.compile(again, backend="eager", fullgraph=True)(held)
        assert found.equal(expected)
        assert found.fingerprint == rows.fingerprint
    found = torch.export.export(Again(), (rows,)).module()(rows)
    assert found.equal(expected)
    assert found.fingerprint == rows.fingerprint
    features = torch.compile(lambda held: held[1:3], backend="eager", fullgraph=True)(rows)
    assert features.equal(rows[1:3])


def test_features_are_tensors():
    rows = made()
    held = rows.as_features()
    assert isinstance(held, torch.Tensor)
    assert (held.dtype, held.size, held.size(), held.size(-1)) == (torch.int8, 33, (5, 33), 33)
    assert Int8Features(rows.codes, 33, rows.centre, rows.step).equal(held)
    assert type(Int8Features.from_float(rows.to_float(), *scales(33))) is Int8Features
    assert repr(rows).startswith("Int8Tensor(5 x 33, 504 bytes, device=cpu)\n[")
    assert repr(rows) == repr(held)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda held: held["codes"][1, 3].fill_(-128), "codes must be within .*, got -128"),
        (lambda held: held["codes"][2, 33:35].fill_(1), "padding bytes must be 0, got 2 others"),
        (lambda held: held["centre"][3:5].fill_(NAN), "centre must be finite, got nan in column 3"),
        (lambda held: held["step"][7].fill_(-1), r"step must be 0 or in .*, got -1.0 in column 7"),
        (lambda held: held["size"].fill_(16), r"codes must have shape \[N, 16\] for size 16"),
    ],
)
def test_damaged_rows_are_refused(change, message):
    held = {name: part.clone() for name, part in made().to_tensors().items()}
    change(held)
    with pytest.raises(ValueError, match=message):
        Int8Tensor.from_tensors(held)
    forged = Int8Tensor._trusted(held["codes"], int(held["size"]), held["centre"], held["step"], 1)
    with pytest.raises(ValueError, match=message):
        pickle.loads(pickle.dumps(forged))


def test_inverses():
    step = torch.tensor([0.0, 2.0, 2.0**-126, 2.0**126, 3.0])
    assert inverse_step(step).tolist() == [0, 0.5, 2.0**126, 2.0**-126, float(1 / step[4])]
    step = torch.rand(10_000)
    factor = inverse_step(step)
    assert not torch.equal(inverse_step(factor), step)
    assert torch.equal(inverse_step(inverse_step(factor)), factor)


CODES, X = torch.zeros(3, 48, dtype=torch.int8), torch.ones(2, 33)
CENTRE, STEP, of = torch.zeros(33), torch.ones(33), Int8Tensor.from_float
META = torch.ones(33, device="meta")
WRONG = r"""
Int8Tensor(CODES.int(), 33, CENTRE, STEP)
    -> TypeError: Int8Tensor: codes must be an int8 tensor, got torch.int32 Tensor
Int8Tensor([1], 33, CENTRE, STEP) -> TypeError: codes must be an int8 tensor, got list
Int8Tensor(of(X, CENTRE, STEP).as_features(), 33, CENTRE, STEP)
    -> TypeError: codes must be an int8 tensor, got torch.int8 Int8Features
Int8Tensor(CODES, 33.0, CENTRE, STEP) -> TypeError: size must be an int, got float
Int8Tensor(CODES, True, CENTRE, STEP) -> TypeError: size must be an int, got bool
Int8Tensor(CODES, 32, CENTRE, STEP)
    -> ValueError: Int8Tensor: codes must have shape \[N, 32\] for size 32, got \[3, 48\]
Int8Tensor(CODES[0], 33, CENTRE, STEP) -> ValueError: got \[48\]
Int8Tensor(CODES[:, :0], -1, CENTRE, STEP) -> ValueError: for size -1
Int8Tensor(CODES, 33, CENTRE.double(), STEP)
    -> TypeError: centre must be a float32 tensor, got torch.float64 Tensor
Int8Tensor(CODES, 33, CENTRE, None) -> TypeError: step must be a float32 tensor, got NoneType
Int8Tensor(CODES, 33, CENTRE, STEP[:32]) -> ValueError: step must have shape \[33\], got \[32\]
Int8Tensor(CODES, 33, META, STEP) -> ValueError: centre must be on cpu, got meta
of(X.int(), CENTRE, STEP)
    -> TypeError: Int8Tensor.from_float: x must be a tensor of floats, got torch.int32 Tensor
of(X.to(torch.uint8), CENTRE, STEP) -> TypeError: x must be a tensor of floats, got torch.uint8
of(X.bool(), CENTRE, STEP) -> TypeError: x must be a tensor of floats, got torch.bool Tensor
of(X.to(torch.complex64), CENTRE, STEP) -> TypeError: x must be a tensor of floats, got torch.compl
of([1.0], CENTRE, STEP) -> TypeError: x must be a tensor of floats, got list
of(X.to_sparse(), CENTRE, STEP) -> TypeError: x must be dense, got layout torch.sparse_coo
of(bitgnn.BitTensor.from_float(X), CENTRE, STEP) -> TypeError: x must be .* got BitTensor
of(X[0], CENTRE, STEP) -> ValueError: x must have shape \[N, K\] .* got \[33\]
of(torch.ones(0, 133121), CENTRE, STEP) -> ValueError: x must .* K <= 133120, got \[0, 133121\]
of(X, CENTRE.int(), STEP) -> TypeError: centre must be a tensor of floats, got torch.int32 Tensor
of(X, CENTRE, 1.0) -> TypeError: step must be a tensor of floats, got float
of(X, CENTRE[:32], STEP)
    -> ValueError: centre must have shape \[33\] like x's features, got \[32\]
of(X, CENTRE, STEP.view(1, 33)) -> ValueError: step must have shape \[33\] like .* got \[1, 33\]
of(X, CENTRE, META) -> ValueError: step must be on cpu, got meta
of(X, CENTRE + NAN, STEP) -> ValueError: centre must be finite, got nan in column 0
of(X, CENTRE.double() + 1e39, STEP) -> ValueError: centre must be finite, got inf in column 0
of(X, CENTRE, STEP * INF) -> ValueError: step must be 0 or in .*, got inf in column 0
of(X, CENTRE, STEP * NAN) -> ValueError: step must be 0 or in .*, got nan in column 0
of(X, CENTRE, -STEP)
    -> ValueError: Int8Tensor.from_float: step must be 0 or in \[2\^-126, 2\^126\], got -1.0 in
        column 0
of(X, CENTRE, STEP * 1e-40) -> ValueError: step must be 0 or in .*, got 1e-40|9.99
of(X, CENTRE, STEP * 1e38) -> ValueError: step must be 0 or in
Int8Tensor.from_tensors({"codes": CODES})
    -> ValueError: tensors must hold \['size', 'centre', 'step'\], got \['codes'\]
bitgnn.cat([of(X, CENTRE, STEP), bitgnn.BitTensor.from_float(X)])
    -> TypeError: tensors\[1\] must be an Int8Tensor like the others
bitgnn.stack([of(X, CENTRE, STEP)] * 2) -> ValueError: must be single rows or images of Int8Tensor
torch.add(of(X, CENTRE, STEP), 1) -> TypeError: add: not defined for packed values
of(X, CENTRE, STEP).to(torch.float16) -> TypeError: device must be a device, got dtype
of(X, CENTRE, STEP)[2] -> IndexError: Int8Tensor\[index\]: index must be within 2 rows, got 2
"""


def test_wrong_calls():
    check_wrong_calls(WRONG, globals())
