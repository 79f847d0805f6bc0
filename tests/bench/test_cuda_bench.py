"""Parts of the CUDA benchmark that need no GPU: rates of gathers, and goals."""

import pytest

from bench import cases as bench_cases
from bench.cases import Case, Goal, run_cuda_case
from bench.cuda_ceilings import Ceilings
from bitgnn.measure.timing import Timing

ENTRIES = [
    {"name": "read", "rate": 4e12},
    {"name": "write", "rate": 2e12},
    {"name": "gather 16 bytes from 2048 KiB", "rate": 160e9},
    {"name": "gather 16 bytes from 131072 KiB", "rate": 50e9},
    {"name": "gather 128 bytes from 2048 KiB", "rate": 80e9},
    {"name": "gather 128 bytes from 131072 KiB", "rate": 40e9},
    {"name": "gather 16 bytes from shared memory", "rate": 500e9},
    {"name": "mma.sync b1 and", "rate": 10e15},
    {"name": "wgmma b1 and", "rate": 15e15},
    {"name": "empty kernel in a graph", "rate": 1e6},
]


@pytest.fixture
def ceilings():
    return Ceilings(ENTRIES)


@pytest.mark.parametrize(
    ("row_bytes", "table_bytes", "rate"),
    [
        (8, 1e6, 160e9),
        (16, 1e8, 50e9),
        (17, 1e6, 80e9),
        (128, 1e6, 80e9),
        (256, 1e6, 40e9),  # two pieces of the widest measured row
    ],
)
def test_gather_rate_takes_the_next_wider_row_and_the_nearest_table(
    ceilings, row_bytes, table_bytes, rate
):
    assert ceilings.gather_rate(row_bytes, table_bytes) == pytest.approx(rate)


def record(goal, monkeypatch, **options):
    times = {"ours": Timing((2e-3,) * 7), "slow": Timing((8e-3,) * 7), "fast": Timing((4e-3,) * 7)}
    monkeypatch.setattr(bench_cases, "compare_on_cuda", lambda functions, **_: (times.copy(), {}))
    case = Case(
        "BMM", "case", lambda: None, {"slow": print, "fast": print}, goal=goal, work=4e9,
        unit="operation", ceiling_seconds=1e-3, binds="memory", **options,
    )  # fmt: skip
    return run_cuda_case(case)


@pytest.mark.parametrize(
    ("goal", "reached"),
    [
        (Goal("seconds", 1e-3), 0.5),
        (Goal("rate", 1e12), 2.0),
        (Goal("ratio", 2.0), 1.0),
        (Goal("ratio", 2.0, "slow"), 2.0),
        (None, None),
    ],
)
def test_goals(goal, reached, monkeypatch):
    found = record(goal, monkeypatch)
    assert found["reached"] == (None if reached is None else pytest.approx(reached))
    assert found["best_baseline"] == "fast"
    assert found["ratio"] == pytest.approx(2.0)
    assert found["rate"] == pytest.approx(2e12)
    assert found["ceiling_fraction"] == pytest.approx(0.5)
