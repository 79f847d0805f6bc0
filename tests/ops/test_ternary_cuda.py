"""Ternary packing and products on a GPU: bit for bit what the CPU gives, by every kernel."""

import itertools

import pytest
import torch

from bitgnn.bits import BitTensor

pytestmark = pytest.mark.cuda
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
OPS = torch.ops.bitgnn


def numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Many values at the limits, some that are no numbers."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(-8, 9, shape, generator=generator) / 4.0
    odd = torch.rand(shape, generator=generator)
    x = torch.where(odd < 0.01, torch.full_like(x, float("nan")), x)
    x = torch.where((odd > 0.01) & (odd < 0.02), torch.full_like(x, float("inf")), x)
    x = torch.where((odd > 0.02) & (odd < 0.03), torch.full_like(x, -float("inf")), x)
    return torch.where(odd > 0.5, x, x * 0.37).to(dtype)


def sign_words(outputs: int, size: int, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    words = -(-size // 32)
    w = torch.randint(-(2**31), 2**31, (outputs, words), generator=generator, dtype=torch.int64)
    w = w.to(torch.int32)
    if size % 32 and outputs:
        w[:, -1] &= (1 << (size % 32)) - 1
    return w


def same(on_gpu, on_cpu) -> bool:
    pairs = zip(on_gpu, on_cpu, strict=True) if isinstance(on_cpu, tuple) else [(on_gpu, on_cpu)]
    return all(torch.equal(a.cpu(), b) and a.dtype == b.dtype for a, b in pairs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["pack_ternary", "pack_bool"])
@pytest.mark.parametrize("scale", [1.0, 0.37, 3e-5, 1e6])
def test_rows_are_packed_as_on_the_cpu(op, dtype, scale):
    pack, s = getattr(OPS, op), torch.tensor(scale)
    for rows, size in itertools.product((0, 1, 3, 1500), (0, 1, 8, 31, 32, 33, 256, 1000, 1024)):
        x = numbers(rows, size, dtype=dtype) * (scale if dtype != torch.float16 else 1.0)
        assert same(pack(x.cuda(), s.cuda()), pack(x, s)), (rows, size)
    x = numbers(2, 5, 3, 4, 72, dtype=dtype)
    for view in (x, x.transpose(1, 3), x[:, 1:, :, ::2], x[..., 3:], x.transpose(-1, -2)):
        on_gpu = pack(
            x.cuda().as_strided(view.size(), view.stride(), view.storage_offset()), s.cuda()
        )
        assert same(on_gpu, pack(view, s)), view.shape


@pytest.mark.parametrize("dtype", DTYPES)
def test_columns_are_packed_as_on_the_cpu(dtype):
    s = torch.tensor(0.8)
    for length, features in itertools.product((0, 1, 31, 33, 128, 700, 2050), (0, 1, 7, 64, 65)):
        x = numbers(2, length, features, dtype=dtype)
        found = OPS.pack_ternary_columns(x.cuda(), s.cuda())
        assert same(found, OPS.pack_ternary_columns(x, s)), (length, features)
    x = numbers(2, 100, 3, 64, dtype=dtype).transpose(1, 2)  # heads of an attention
    assert same(OPS.pack_ternary_columns(x.cuda(), s.cuda()), OPS.pack_ternary_columns(x, s))


@pytest.mark.parametrize(
    ("rows", "outputs", "parts"),
    [(40, 70, ((0, 768), (1, 768), (4, 264), (8, 512))), (2049, 2048, ((0, 2040), (8, 2040)))],
)
def test_rows_between_others_and_misaligned_weights(rows, outputs, parts):
    """Rows of a wider matrix, and weights that no vector load may read."""
    wide, scale = numbers(rows + 1, 2400, dtype=torch.float16), torch.tensor(0.9)
    for first, size in (*parts, (4, parts[-1][1])):  # the last one is not aligned
        w, place = sign_words(outputs, size), (slice(1, None), slice(first, first + size))
        moved = torch.zeros(w.numel() + 1, dtype=torch.int32, device="cuda")[1:].view_as(w)
        moved.copy_(w)
        for weight in (w.cuda(), moved):
            found = OPS.linear_ternary(wide.cuda()[place], weight, size, scale.cuda())
            assert same(found, OPS.linear_ternary(wide[place], w, size, scale)), (first, size)


@pytest.mark.parametrize(("rows", "size"), [(128, 768), (2000, 2048)])
def test_a_graph_replays_new_rows(rows, size):
    scale = torch.tensor(0.9).cuda()
    w = sign_words(size, size).cuda()
    x = numbers(rows, size, dtype=torch.float16).cuda()
    for _ in range(2):
        OPS.linear_ternary(x, w, size, scale, None, None, torch.float16)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        hidden = OPS.linear_ternary(x, w, size, scale, None, None, torch.float16)
        out = OPS.linear_ternary(hidden, w, size, scale, None, None, torch.float16)
    for seed in range(3):
        x.copy_(numbers(rows, size, dtype=torch.float16, seed=seed))
        graph.replay()
        hidden_now = OPS.linear_ternary(x.cpu(), w.cpu(), size, scale.cpu(), None, None, x.dtype)
        again = OPS.linear_ternary(hidden_now, w.cpu(), size, scale.cpu(), None, None, x.dtype)
        assert torch.equal(out.cpu(), again)


def test_weights_packed_by_the_kernel_before():
    """Layers that read weights ahead of their rows still see those that were packed just before."""
    scale = torch.tensor(0.9).cuda()
    x = numbers(32, 4096, dtype=torch.float16).cuda()
    values = torch.randn(256, 4096, device="cuda")

    def layer() -> tuple[torch.Tensor, torch.Tensor]:
        weight = BitTensor.from_float(values)
        return OPS.linear_ternary(x, weight.words, 4096, scale), weight.words

    layer()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        calls = [layer() for _ in range(4)]
    for _ in range(5):
        values.copy_(torch.randn_like(values))
        graph.replay()
        words = BitTensor.from_float(values.cpu()).words
        expected = OPS.linear_ternary(x.cpu(), words, 4096, scale.cpu())
        assert all(same(found, (expected, words)) for found in calls)
