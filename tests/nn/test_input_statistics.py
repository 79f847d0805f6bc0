"""Running statistics of input columns: their formula, what a batch weighs, states and casts."""

import copy

import pytest
import torch

from bitgnn.nn import InputBits
from bitgnn.nn.inputs.input_statistics import (
    LOOKED_AT,
    MEMORY,
    OFTEN,
    SELDOM,
    ColumnStatistics,
    Moments,
)

K = 7


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def seen(*batches, size=K):
    statistics = ColumnStatistics("GCNConv", size)
    for x in batches:
        statistics.commit(statistics.merged(x))
    return statistics


def check_moments(found, x):
    x = x.double()
    assert torch.allclose(found.mean.double(), x.mean(0), rtol=1e-5, atol=1e-6)
    assert torch.allclose(found.variance.double(), x.var(0, correction=0), rtol=1e-5, atol=1e-6)
    assert torch.allclose(found.present.double(), (x > 0).double().mean(0))
    assert float(found.negative) == pytest.approx(float((x < 0).double().mean()))


@pytest.mark.parametrize("sizes", [(1,), (50,), (50, 1), (1, 50), (3, 0, 40, 2, 40), (1, 1, 1)])
def test_batches_add_up_to_all_of_their_rows(sizes):
    batches = [3.0 * torch.randn(size, K) + torch.arange(K) for size in sizes]
    found = seen(*batches).moments
    check_moments(found, torch.cat(batches))
    assert float(found.rows) == sum(sizes)
    assert float(found.batches) == sum(size > 0 for size in sizes)


def test_merging_keeps_nothing_by_itself():
    statistics = seen(torch.randn(9, K))
    before = copy.deepcopy(statistics.state_dict())
    statistics.merged(torch.randn(9, K))
    assert all(torch.equal(before[name], now) for name, now in statistics.state_dict().items())


def test_late_batches_go_on_counting():
    statistics = seen(*[torch.zeros(10, K)] * 300)
    assert float(statistics.rows) == 10 * (MEMORY - 1)
    weight = 1 / MEMORY
    assert torch.allclose(statistics.merged(torch.ones(10, K)).mean, torch.tensor(weight))
    # One made-up row behind many rows, and many behind one.
    assert float(seen(torch.zeros(999, K), torch.ones(1, K)).mean[0]) == pytest.approx(
        1e-3, rel=1e-3
    )
    assert float(seen(torch.ones(1, K), torch.zeros(999, K)).mean[0]) == pytest.approx(
        1e-3, rel=1e-3
    )


def test_of_later_batches_some_count():
    bits, due = InputBits("Layer", K), []
    for batch in range(OFTEN + 3 * SELDOM):
        before = bits.mean.clone()
        bits.choose(torch.randn(5, K))
        bits(torch.randn(5, K))
        assert float(bits.batches) == batch + 1
        if not torch.equal(bits.mean, before):
            due.append(batch)
        if batch == OFTEN + 3:  # a training that resumes goes on with the same batches
            resumed = InputBits("Layer", K)
            resumed.load_state_dict(bits.state_dict())
            bits = resumed
    assert due == [*range(OFTEN), *range(OFTEN, OFTEN + 3 * SELDOM, SELDOM)]


def test_of_many_rows_some_are_looked_at_from_all_parts():
    x = torch.arange(2.0 * LOOKED_AT + 1).unsqueeze(1)
    found = seen(x, size=1).moments
    check_moments(found, x[::3])
    assert float(found.rows) == len(x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_buffers_are_float32_whatever_the_model_is(dtype):
    statistics = seen(torch.randn(20, K).to(dtype)).to(dtype)
    with torch.device("cpu"):
        torch.set_default_dtype(torch.float64)
        try:
            statistics.reset_parameters()
            other = ColumnStatistics("Layer", -1)
            other.materialize(K)
        finally:
            torch.set_default_dtype(torch.float32)
    for each in (*statistics.buffers(), *other.buffers(), *other.half().buffers()):
        assert each.dtype == torch.float32


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e30, -1e38], ids=str)
def test_columns_without_finite_moments_are_named(bad):
    x = torch.randn(20, 8)
    x[3, 2], x[5, 7], x[6, 7] = bad, bad, bad
    statistics = ColumnStatistics("GCNConv", 8)
    with pytest.raises(
        ValueError, match=r"^GCNConv: x must be finite and below 1e[+]19 .* columns 2, 7$"
    ):
        statistics.merged(x)
    x[0, :7] = bad
    with pytest.raises(ValueError, match=r"columns 0, 1, 2, 3, 4, \.\.\.$"):
        statistics.merged(x)
    assert float(statistics.rows) == 0.0


def test_a_batch_that_nobody_asked_about_leaves_no_nan():
    statistics = seen(torch.randn(5, K))
    before = statistics.mean.clone()
    found = statistics.moments
    statistics.commit(Moments(found.mean * torch.nan, *found[1:]))
    assert torch.equal(statistics.mean, before)


def test_reset_forgets_everything():
    statistics = seen(*[torch.randn(9, K)] * (OFTEN + 2))
    assert not statistics.is_due
    statistics.reset_parameters()
    fresh = ColumnStatistics("Layer", K)
    assert statistics.is_due
    for name, value in fresh.state_dict().items():
        assert torch.equal(value, statistics.state_dict()[name])


def test_a_compiled_model_counts_the_batches_that_the_host_would():
    torch.manual_seed(0)
    alone, compiled = ColumnStatistics("Layer", K), ColumnStatistics("Layer", K)

    @torch.compile(backend="eager")
    def step(x):
        compiled.commit(compiled.counted(x))

    for _ in range(OFTEN + 2 * SELDOM):
        x = torch.randn(9, K)
        alone.commit(alone.counted(x))
        step(x)
        for one, other in zip(alone.moments, compiled.moments, strict=True):
            torch.testing.assert_close(one, other)


def test_a_small_last_batch_leaves_what_large_ones_have_told():
    torch.manual_seed(0)
    large, small = torch.randn(1000, 3) + 1.0, torch.randn(2, 3) * 50.0
    seen = ColumnStatistics("Layer", 3)
    for _ in range(30):
        for x in (large, large, small):
            seen.commit(seen.merged(x))
    other = torch.randn(1000, 3) - 1.0
    before = seen.mean.clone()
    found = seen.merged(other)
    assert torch.allclose(before, large.mean(0), atol=0.5)
    assert torch.allclose(found.mean, before + (other.mean(0) - before) / 60, atol=0.02)


@pytest.mark.parametrize("rows", [2**24, 2**24 + 1, 10**9, 10**12])
@pytest.mark.parametrize("size", [1, 300])
def test_rows_are_counted_without_end(rows, size):
    torch.manual_seed(0)
    seen = ColumnStatistics("Layer", 2)
    seen.commit(seen.merged(torch.randn(size, 2)))
    seen.rows.fill_(rows)
    x = torch.randn(size, 2) + 5.0
    found = seen.merged(x)
    weight = size / (rows + size)
    assert torch.allclose(
        (found.mean - seen.mean).double(), weight * (x.mean(0) - seen.mean).double(), atol=1e-7
    )
    assert float(found.rows) == pytest.approx(0.99 * rows, rel=1e-6)
    # Batches of this size take over in the end, with a weight of 1 / 100.
    for _ in range(6000):
        seen.rows.copy_(seen.merged(x).rows)
    assert float(seen.rows) == pytest.approx(99 * size, rel=0.02)
