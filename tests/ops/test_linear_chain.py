"""Chains of fully connected layers equal the layers one by one, bit for bit."""

import itertools

import pytest
import torch

from bitgnn import BitTensor
from bitgnn.bits import BitImages
from bitgnn.ops import bmm, conv
from bitgnn.ops.linear import linear_chain, make_chain


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
            words = w.words.view(w.shape[0], 1, 1, -1)
            kernel = BitImages(words, w.size, w.scale)
            hidden.append((w, conv.prepare(kernel, threshold=threshold, flip=flip)[:, 1:]))
        return make_chain(hidden, self.last, self.scale, self.bias)

    def layer_by_layer(self, x):
        for w, threshold, flip in self.hidden:
            x = bmm.bbb(x, w, threshold=threshold, flip=flip)
        last = BitTensor(self.last.words, self.last.size, self.scale)
        return bmm.bbf(x, last, bias=self.bias)


def rows_of(count, size, device):
    generator = torch.Generator().manual_seed(count)
    return BitTensor.from_float(torch.randn(count, size, generator=generator).to(device))


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
def test_equals_layers_one_by_one(sizes, count, device):
    network = Network(sizes, device)
    chain = network.chain()
    assert chain.fits()
    x = rows_of(count, sizes[0], device)
    assert torch.equal(linear_chain(x, chain), network.layer_by_layer(x))


def test_layers_too_wide_for_the_bits_of_many_rows(device):
    network = Network((12800, 40, 20), device)
    chain, x = network.chain(), rows_of(140, 12800, device)
    assert [chain.fits(rows) for rows in (1, 128, 129)] == [True, True, False]
    assert torch.equal(linear_chain(x, chain), network.layer_by_layer(x))


def test_wide_layers(device):
    network = Network((4096, 2048, 1000), device)
    x = rows_of(9, 4096, device)
    assert network.chain().fits()
    assert torch.equal(linear_chain(x, network.chain()), network.layer_by_layer(x))


def test_without_scale_and_bias_it_is_the_dot_product(device):
    network = Network((70, 50, 20), device)
    chain = make_chain([], network.last)
    x = rows_of(5, 50, device)
    assert torch.equal(linear_chain(x, chain), bmm.bbf(x, network.last, integer=True).float())


@pytest.mark.cuda
def test_what_does_not_fit_is_refused():
    network = Network((8192, 8192, 10), torch.device("cuda"))
    assert not network.chain().fits()
    with pytest.raises(RuntimeError, match="linear_chain: layers must have weights that fit"):
        linear_chain(rows_of(3, 8192, "cuda"), network.chain())


@pytest.mark.cuda
def test_behind_other_kernels_in_a_graph():
    network = Network((784, 1024, 1024, 1024, 10), torch.device("cuda"))
    chain, x = network.chain(), torch.randn(8, 784, device="cuda")
    run = lambda: linear_chain(BitTensor.from_float(x), chain)  # noqa: E731
    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()
    for _ in range(5):
        x.normal_()
        graph.replay()
        assert torch.equal(out, network.layer_by_layer(BitTensor.from_float(x)))


def test_errors(device):
    network = Network((70, 50, 20), device)
    chain, (w, _, _) = network.chain(), network.hidden[0]
    limits = torch.zeros(50, 2, dtype=torch.int32, device=device)
    with pytest.raises(ValueError, match="linear_chain: x must have 70 features, got 50"):
        linear_chain(rows_of(3, 50, device), chain)
    with pytest.raises(ValueError, match="layer 1 must take the 50 outputs of the one before"):
        make_chain([(w, limits)], BitTensor.from_float(torch.randn(5, 51, device=device)))
    with pytest.raises(ValueError, match=r"limit and turned of layer 0 must be int32 \[50, 2\]"):
        make_chain([(w, limits[:, :1])], network.last)
    with pytest.raises(ValueError, match="at most 8 layers make a chain, got 9"):
        make_chain([(w, limits)] * 8, network.last)
    with pytest.raises(RuntimeError, match="layers must hold 4 numbers for each of 1 to 8"):
        torch.ops.bitgnn.linear_chain(rows_of(3, 70, device).words, chain.image, [1, 2, 3])
    with pytest.raises(RuntimeError, match="layers must place the weights of layer 0 inside"):
        torch.ops.bitgnn.linear_chain(
            rows_of(3, 70, device).words, chain.image[:8], list(chain.layers)
        )
