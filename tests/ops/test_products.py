"""BMM where kernels change their way: few, sparse and transposed rows, float weights, chains."""

import itertools

import pytest
import torch
from wrong_calls import check_wrong_calls

from bitgnn import BitTensor
from bitgnn.bits import BitImages
from bitgnn.ops import bmm, conv, reference
from bitgnn.ops.linear import bits_linear, linear_chain, make_chain, weight_digits
from bitgnn.ops.reference.bmm import digits_in_order

CUDA = torch.device("cuda")
LENGTHS = (0, 1, 31, 32, 33, 64, 100, 257, 1030)


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def packed(rows, size, device, scale=None):
    return BitTensor.from_float(drawn(rows, size, seed=rows + 7 * size).to(device), scale=scale)


def sparse_rows(rows, size, share, density, seed):
    """Signs with +1 in about ``share`` of the words alone, among them empty and full rows.

    In those words a part of ``density`` of the bits is set.
    """
    generator = torch.Generator().manual_seed(seed)
    kept = torch.rand(rows, -(-size // 32), generator=generator) < share
    kept[::7], kept[3::11] = False, True
    signs = torch.where(torch.rand(rows, size, generator=generator) < density, 1.0, -1.0)
    return torch.where(kept.repeat_interleave(32, 1)[:, :size], signs, -1.0)


@pytest.mark.parametrize("size", [512, 513, 1024, 1433, 3703])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.7])
@pytest.mark.parametrize(("rows", "density"), [(1, 0.3), (33, 0.03), (130, 0.03), (130, 0.3)])
def test_rows_most_of_whose_words_are_zero(size, share, rows, density):
    """As packed bags of words have them."""
    x = sparse_rows(rows, size, share, density, seed=size)
    bits = BitTensor.from_float(x)
    for outputs in (1, 32, 70, 140):
        weight = drawn(outputs, size, seed=1)
        w = BitTensor.from_float(weight)
        expected = x @ torch.where(weight >= 0, 1.0, -1.0).t()
        assert torch.equal(bmm.bbf(bits, w, scale=False), expected)
        threshold = drawn(outputs) * size**0.5
        words = reference.bmm.bmm_bbb(bits.words, w.words, size, threshold=threshold)
        assert torch.equal(bmm.bbb(bits, w, threshold=threshold).words, words)
        # Packed inside the product, the last rows in a block of their own.
        assert torch.equal(bmm.fbb(x, w, threshold=threshold).words, words)


@pytest.mark.parametrize("rows", [511, 512, 545, 1100])
def test_packing_in_blocks(rows):
    # Floats are packed some hundred rows at a time inside the product, with scales of their own.
    x, w = drawn(rows, 530, seed=rows), packed(40, 530, "cpu", "mean")
    assert torch.equal(bmm.fbf(x, w), reference.bmm.bmm_fbf(x, w.words, w.scale, scale=True))


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_rows_beyond_the_caches(share):
    # More than any core's share of the caches: fetched while others are multiplied.
    rows, size = 13_003, 530
    x, w = sparse_rows(rows, size, share, 0.1, seed=2), packed(70, size, "cpu")
    expected = bmm.bbb(BitTensor.from_float(x), w).words
    assert torch.equal(bmm.fbb(x, w).words, expected)
    columns = torch.cat([x, x[:, :7]], 1)[:, :size]  # rows with something in between
    assert torch.equal(bmm.fbb(columns, w).words, expected)


@pytest.mark.parametrize("rows", LENGTHS)
@pytest.mark.parametrize("size", LENGTHS)
def test_transposed_bits(rows, size, device):
    bits = packed(rows, size, device)
    turned = bits.t()
    assert turned.shape == (size, rows)
    assert torch.equal(turned.to_float(), bits.to_float().t())
    turned.validate()  # padding bits are 0
    assert turned.t().equal(bits)
    apart = torch.stack([bits.words, bits.words], 1)[:, 0]
    assert BitTensor(apart, size).t().equal(turned)


@pytest.mark.parametrize("transpose_x", [False, True])
@pytest.mark.parametrize("transpose_w", [False, True])
@pytest.mark.parametrize(("n", "k", "m"), [(1, 1, 1), (33, 70, 31), (64, 0, 5), (130, 257, 96)])
def test_products_of_transposed_bits(n, k, m, transpose_x, transpose_w, device):
    x, w = packed(n, k, device), packed(m, k, device)
    expected = (x.to_float() @ w.to_float().t()).int()
    given = {"transpose_x": transpose_x, "transpose_w": transpose_w}
    x, w = x.t() if transpose_x else x, w.t() if transpose_w else w
    assert torch.equal(bmm.bbf(x, w, integer=True, **given), expected)
    assert torch.equal(bmm.bbb(x, w, **given).to_float() > 0, expected >= 0)


@pytest.mark.parametrize("size", [1, 31, 32, 33, 500])
@pytest.mark.parametrize("factor", [1.0, 1e-30, 1e30])
def test_digits_hold_weights_to_half_a_step(size, factor):
    weight = drawn(7, size) * factor
    weight[3] = 0.0
    weight[4, 0] = 1e4 * factor
    digits, step = weight_digits(weight)
    places = digits_in_order(digits).double()
    whole = 65536 * places[0] + 256 * places[1] + places[2]
    assert (whole[:, size:] == 0).all()
    held = whole[:, :size] * step.double().unsqueeze(1)
    assert ((held - weight.double()).abs() <= 0.5001 * step.double().unsqueeze(1)).all()
    assert (step.double() <= weight.double().abs().amax(1) * 2.0**-22 + 1e-44).all()


def shifted(t, places):
    """An equal tensor that begins so many elements behind a boundary of memory."""
    memory = torch.cat([t.new_zeros(places), t.flatten()])
    return memory[places:].view(t.shape)


@pytest.mark.parametrize(("n", "k", "m"), [(1, 1, 1), (70, 33, 5), (300, 256, 14), (40, 602, 41)])
@pytest.mark.parametrize("scale", [False, True])
def test_float_weights(n, k, m, scale, device):
    floats, weight, bias, addend = drawn(n, k), drawn(m, k, seed=1), drawn(m), drawn(n, m, seed=2)
    x = BitTensor.from_float(floats, scale="mean")
    factor = x.scale.double().unsqueeze(1) if scale else 1.0
    signs = torch.where(floats >= 0, 1.0, -1.0).double()
    expected = factor * (signs @ weight.double().t()) + bias + addend
    digits, step = (t.to(device) for t in weight_digits(weight))
    given = {"scale": scale, "bias": bias.to(device), "addend": addend.to(device)}
    x = x.to(device)
    found = bits_linear(x, digits, step, **given)
    torch.testing.assert_close(found.cpu().double(), expected, rtol=1e-5, atol=1e-5)
    for places in (0, 1, 2, 3):
        moved = BitTensor(shifted(x.words, places), x.size, x.scale)
        operands = moved, shifted(digits, places), shifted(step, places)
        assert torch.equal(bits_linear(*operands, **given), found)


class Network:
    """Random layers of given sizes, with thresholds, scales of both signs and turned bits."""

    def __init__(self, sizes, device, seed=0):
        generator = torch.Generator().manual_seed(seed + sum(sizes))

        def floats(*shape):
            return torch.randn(shape, generator=generator).to(device)

        self.hidden = []
        for size, outputs in itertools.pairwise(sizes[:-1]):
            bits = BitTensor.from_float(floats(outputs, size))
            w = BitTensor(bits.words, size, floats(outputs).abs() + 0.1)
            self.hidden.append((w, floats(outputs) * size**0.5, floats(outputs) > 0.3))
        self.last = BitTensor.from_float(floats(sizes[-1], sizes[-2]))
        self.scale, self.bias = floats(sizes[-1]), floats(sizes[-1])

    def chain(self):
        hidden = []
        for w, threshold, flip in self.hidden:
            kernel = BitImages(w.words.view(w.shape[0], 1, 1, -1), w.size, w.scale)
            hidden.append((w, conv.prepare(kernel, threshold=threshold, flip=flip)[:, 1:]))
        return make_chain(hidden, self.last, self.scale, self.bias)

    def layer_by_layer(self, x):
        for w, threshold, flip in self.hidden:
            x = bmm.bbb(x, w, threshold=threshold, flip=flip)
        last = BitTensor(self.last.words, self.last.size, self.scale)
        return bmm.bbf(x, last, bias=self.bias)


SIZES = [
    (40, 10),
    (1, 1, 1),
    (31, 33, 7),
    (784, 1024, 1024, 1024, 10),
    (512, 512, 1000),
    (1024, 40, 1024, 513, 100),  # narrow and wide layers in turn
    (257, 65, 32, 31, 64, 63, 300, 17, 5),
]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("count", [0, 1, 8, 16, 17, 100, 129, 300, 600, 1100])
def test_chains_equal_layers_one_by_one(sizes, count, device):
    network = Network(sizes, device)
    chain = network.chain()
    assert chain.fits() == (device.type == "cuda")
    x = packed(count, sizes[0], device)
    assert torch.equal(linear_chain(x, chain), network.layer_by_layer(x))


def test_wide_layers_of_chains(device):
    for sizes, rows in (((12800, 40, 20), 140), ((4096, 2048, 1000), 9)):
        network, x = Network(sizes, device), packed(rows, sizes[0], device)
        chain = network.chain()
        assert chain.fits() == (device.type == "cuda")
        assert torch.equal(linear_chain(x, chain), network.layer_by_layer(x))
    network, x = Network((70, 50, 20), device), packed(5, 50, device)
    chain = make_chain([], network.last)
    assert torch.equal(linear_chain(x, chain), bmm.bbf(x, network.last, integer=True).float())


@pytest.mark.cuda
def test_what_does_not_fit_is_refused():
    network = Network((8192, 8192, 10), CUDA)
    assert not network.chain().fits()
    with pytest.raises(RuntimeError, match="linear_chain: layers must have weights that fit"):
        linear_chain(packed(3, 8192, "cuda"), network.chain())


@pytest.mark.cuda
def test_chains_behind_other_kernels_in_a_graph():
    network = Network((784, 1024, 1024, 1024, 10), CUDA)
    chain, x = network.chain(), torch.randn(8, 784, device="cuda")
    linear_chain(BitTensor.from_float(x), chain)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = linear_chain(BitTensor.from_float(x), chain)
    for _ in range(5):
        x.normal_()
        graph.replay()
        assert torch.equal(out, network.layer_by_layer(BitTensor.from_float(x)))


CHAINED = Network((70, 50, 20), "cpu")
CHAIN, (W, *_), LAST = CHAINED.chain(), CHAINED.hidden[0], CHAINED.last
LIMITS = torch.zeros(50, 2, dtype=torch.int32)
X, SCALED = packed(3, 70, "cpu"), packed(5, 40, "cpu", "mean")
CHAIN_OF = torch.ops.bitgnn.linear_chain
WRONG = r"""
linear_chain(packed(3, 50, "cpu"), CHAIN)
    -> ValueError: linear_chain: x must have 70 features, got 50
make_chain([(W, LIMITS)], packed(5, 51, "cpu"))
    -> ValueError: layer 1 must take the 50 outputs of the one before
make_chain([(W, LIMITS[:, :1])], LAST)
    -> ValueError: limit and turned of layer 0 must be int32 \[50, 2\]
make_chain([(W, LIMITS)] * 8, LAST) -> ValueError: at most 8 layers make a chain, got 9
CHAIN_OF(X.words, CHAIN.image, [1, 2, 3])
    -> RuntimeError: layers must hold 4 numbers for each of 1 to 8
CHAIN_OF(X.words, CHAIN.image[:8], list(CHAIN.layers))
    -> RuntimeError: layers must place the weights of layer 0 inside
SCALED.t() -> ValueError: BitTensor\.t: a matrix with a scale
bmm.bbf(SCALED, packed(40, 5, "cpu"), transpose_x=True)
    -> ValueError: bmm\.bbf: x must hold no scale where it is stored
bmm.bbb(X, X.to_float(), transpose_w=True) -> TypeError: bmm\.bbb: w must be a BitTensor
bmm.bbf(packed(40, 5, "cpu"), packed(6, 40, "cpu"), transpose_w=True)
    -> ValueError: bmm\.bbf: w must hold 5 features like x, got 6
"""


def test_errors():
    check_wrong_calls(WRONG, globals())


@pytest.mark.cuda
@pytest.mark.parametrize("rows", [1, 8, 9, 16, 17, 33, 70])
@pytest.mark.parametrize("size", [1, 4, 31, 160, 161, 784, 3000, 7000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.uint8])
def test_fully_connected_first_layers(rows, size, dtype, sampler, assert_kernel_equals_reference):
    draw = sampler(seed=rows + size)
    step = 1.0 if dtype == torch.uint8 else 2.0**-9
    x = torch.randn(rows, size, 1, 1, generator=draw.generator).mul(9 if step < 1 else 99)
    numbers = {"step": step, "stride": [1, 1], "padding": [0] * 4, "dilation": [1, 1]}
    for outputs in (10, 16, 257):
        given = numbers | {"x": x.to(dtype), "w": draw.bits(outputs, size).view(outputs, 1, 1, -1)}
        shared = given | {"w_scale": draw.floats(outputs).abs(), "bias": draw.floats(outputs)}
        compared = {"threshold": draw.floats(outputs), "flip": draw.floats(outputs) > 0}
        assert_kernel_equals_reference("conv_fbb", shared | compared, CUDA)
        assert_kernel_equals_reference("conv_fbf", shared, CUDA)
        assert_kernel_equals_reference("conv_fbf", given | {"integer": True}, CUDA)
