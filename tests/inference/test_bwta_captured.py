"""Frozen BWTA layers and decoders in CUDA graphs: as eager and as on a CPU."""

import copy

import pytest
import torch

import bitgnn
from bitgnn.models import Decoder
from bitgnn.nn import BWTALinear, BWTASelfAttention
from bitgnn.nn.multistage import initialize_scales, set_level

pytestmark = pytest.mark.cuda
CUDA = torch.device("cuda")
REPLAYS = 3


class Captured:
    """A call recorded once and replayed with new values in its inputs."""

    def __init__(self, call, *inputs):
        self.inputs = [x.to(CUDA, copy=True) for x in inputs]
        for _ in range(2):
            call(*self.inputs)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.output = call(*self.inputs)

    @torch.inference_mode()
    def __call__(self, *inputs):
        for held, x in zip(self.inputs, inputs, strict=True):
            held.copy_(x)
        for output in self.output if isinstance(self.output, tuple) else (self.output,):
            output.zero_()
        self.graph.replay()
        return self.output


def drawn(seed):
    return torch.Generator().manual_seed(seed)


def linear(sizes, activation):
    torch.manual_seed(0)
    layer = BWTALinear(*sizes, activation=activation)
    layer(torch.randn(64, sizes[0]))
    return bitgnn.freeze(layer.eval())


# One row, few, odd sizes, and as many as the products of warpgroups take.
@pytest.mark.parametrize(
    ("rows", "sizes"), [(1, (256, 512)), (7, (33, 67)), (128, (768, 768)), (1024, (512, 512))]
)
@pytest.mark.parametrize("activation", ["ternary", "bool", "sign"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_linear_layers(rows, sizes, activation, dtype):
    frozen = linear(sizes, activation)
    on_gpu = copy.deepcopy(frozen).cuda()
    inputs = [torch.randn(rows, sizes[0], generator=drawn(i)).to(dtype) for i in range(REPLAYS)]
    run = Captured(on_gpu, inputs[0])
    for x in inputs:
        expected = on_gpu(x.cuda())
        assert torch.equal(run(x), expected)
        assert torch.equal(expected.cpu(), frozen(x))


# Heads and lengths that fill the kernels' tiles, and that do not.
@pytest.mark.parametrize("size", [16, 64])
@pytest.mark.parametrize("length", [1, 37, 256])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("activation", ["ternary", "sign"])
def test_attention(size, length, causal, activation):
    torch.manual_seed(0)
    attention = BWTASelfAttention(4 * size, 4, kv_heads=2, activation=activation)
    attention(torch.randn(2, 64, 4 * size))
    frozen = bitgnn.freeze(attention.eval())
    on_gpu = copy.deepcopy(frozen).cuda()
    inputs = []
    for i in range(REPLAYS):
        mask = torch.rand(2, length, generator=drawn(i)) < 0.8
        inputs.append((torch.randn(2, length, 4 * size, generator=drawn(i)), mask))
    run = Captured(lambda x, mask: on_gpu(x, mask, causal=causal), *inputs[0])
    for x, mask in inputs:
        expected = on_gpu(x.cuda(), mask.cuda(), causal=causal)
        assert torch.equal(run(x, mask), expected)
        assert torch.equal(expected.cpu(), frozen(x, mask, causal=causal))


def same_but_for_ties(found, expected):
    """Floats between layers may round otherwise on a GPU, which turns a few values at limits."""
    return torch.isclose(found, expected, rtol=1e-3, atol=1e-3).float().mean() > 0.9


@pytest.mark.parametrize("batch", [1, 8])
def test_a_decoder_goes_on_token_by_token(batch):
    torch.manual_seed(0)
    model = Decoder(40, layers=2, width=64, heads=2, inner=96, length=24).eval()
    ids = torch.randint(40, (batch, 24))
    set_level(model, 1)
    initialize_scales(model, lambda: model(ids))
    decoder = bitgnn.freeze(model).cuda().model
    ids, caches = ids.cuda(), [decoder.new_cache(batch) for _ in range(2)]
    eager, recorded = caches
    run = Captured(lambda token: decoder.step(token, recorded), ids[:, :1])
    for cache in caches:
        cache.position.zero_()
        decoder.step(ids[:, :7], cache)
    for i in range(7, 24):
        expected = decoder.step(ids[:, i : i + 1], eager)
        assert torch.equal(run(ids[:, i : i + 1]), expected)
    assert int(recorded.position) == int(eager.position) == 24
    on_cpu = bitgnn.freeze(model).model
    cache = on_cpu.new_cache(batch)
    for part in (ids[:, :7].cpu(), *ids[:, 7:].cpu().split(1, 1)):
        found = on_cpu.step(part, cache)
    assert same_but_for_ties(expected.cpu(), found)
