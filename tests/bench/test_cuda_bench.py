"""Parts of the CUDA benchmark that need no GPU: ceilings, goals, records, tables and charts."""

import pytest

from bench import cases as bench_cases
from bench.cases import Case, Goal, Skipped, run_cases, run_cuda_case
from bench.cuda_ceilings import Ceilings, bit_ceiling, measure_ceilings
from bench.report import fraction_chart
from bench.tables.documents import cases_table, cuda_profile_table
from bitgnn.measure.timing import Timing
from profile_cuda import read_kernels, split_cases

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


def test_ceilings_by_name(ceilings):
    assert ceilings.product_rate == 15e15
    assert ceilings.launch_seconds == pytest.approx(1e-6)
    assert ceilings.memory_seconds(4e12, 2e12) == pytest.approx(2.0)


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


def test_ceiling_of_an_aggregation(ceilings):
    # Many edges a node: from shared memory. Few: from the cache.
    dense, binds = bit_ceiling(ceilings, 1000, 10**8, 128, 16.0)
    assert binds == "gathers"
    assert dense == pytest.approx(10**8 / 500e9 + 1e-6)
    sparse, _ = bit_ceiling(ceilings, 10**5, 10**6, 128, 16.0)
    assert sparse == pytest.approx(10**6 / 160e9 + 1e-6)


def test_missing_program_names_what_is_needed(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="--ceilings"):
        measure_ceilings()


def test_failing_program_is_reported(tmp_path):
    program = tmp_path / "ceilings"
    program.write_text("#!/bin/sh\necho no device >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(RuntimeError, match="no device"):
        measure_ceilings(program)


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


def test_a_run_describes_each_case_and_names_the_skipped(monkeypatch):
    found = record(Goal("seconds", 1e-3), monkeypatch)
    lines = []
    body = run_cases(
        [object(), Skipped("BSpMM", "flickr", "no file")],
        lines.append,
        run=lambda case: found,
    )
    assert body["results"] == [found]
    assert lines == [
        "BMM: case: 2000.00 us, 2.00x fast, 50% of the ceiling, 50% of the goal",
        "BSpMM: flickr: skipped, no file",
    ]


def test_wrong_results_are_not_timed(monkeypatch):
    with pytest.raises(RuntimeError, match="case gives a wrong result"):
        record(None, monkeypatch, check=lambda: False)


def test_table_and_chart(monkeypatch, tmp_path):
    results = [record(g, monkeypatch) for g in (Goal("rate", 1e12), Goal("ratio", 4.0), None)]
    environment = {
        "gpu": "A GPU", "cuda": "13.0", "cpu": "", "commit": "abc", "dirty": False,
        "date": "2026-01-01T00:00", "versions": {"torch": "2.11", "torch-geometric": "2.8"},
    }  # fmt: skip
    table = cases_table(
        {
            "benchmark": "ops_cuda",
            "environment": environment,
            "settings": {"repeats": 7},
            "results": results,
            "skipped": [{"name": "flickr", "reason": "no file"}],
        }
    )
    assert "A GPU, CUDA 13.0" in table
    assert "1·10¹² operations/s: 200%" in table
    assert "4.00× best baseline: 50%" in table
    assert "50% (memory)" in table
    assert "not measured: flickr: no file" in table
    chart = tmp_path / "chart.png"
    fraction_chart(chart, [("a", 0.5, "memory"), ("b", 0.9, "gathers")], "title")
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_profiles_are_split_by_case():
    header = '"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"\n'
    rows = [
        ("0", "vectorized_elementwise_kernel(int)", "Duration", "us", "1"),
        ("1", "count(Args)", "Duration", "us", "250"),
        ("1", "count(Args)", "Registers Per Thread", "", "64"),
        ("2", "merge(Args)", "Duration", "us", "150"),
        ("3", "vectorized_elementwise_kernel(int)", "Duration", "us", "1"),
        ("4", "multiply(Args)", "Duration", "us", "6"),
    ]
    text = (
        "==PROF== something\n"
        + header
        + "".join(
            f'"{i}","{kernel}","S","{name}","{unit}","{value}"\n'
            for i, kernel, name, unit, value in rows
        )
    )
    first, second = split_cases(read_kernels(text))
    assert [kernel["kernel"] for kernel in first] == ["count", "merge"]
    assert first[0]["metrics"] == {"Duration [us]": "250", "Registers Per Thread": "64"}
    assert [kernel["kernel"] for kernel in second] == ["multiply"]
    assert split_cases(read_kernels("no table")) == []


def test_profile_table_has_a_row_for_each_kernel():
    metrics = {"Duration [ns]": "6,688", "L2 Cache Throughput [%]": "12.62"}
    text = cuda_profile_table(
        {
            "environment": {"gpu": "A GPU", "commit": None, "date": "2026-01-01T00:00"},
            "cases": [
                {
                    "name": "BMM",
                    "kernels": [
                        {"kernel": "bitgnn::counts", "metrics": {}},
                        {"kernel": "void bitgnn::wgmma<0>", "metrics": metrics},
                    ],
                }
            ],
        }
    )
    assert "A GPU, commit unknown, 2026-01-01" in text
    assert "| BMM | counts |" in text
    assert "| BMM | wgmma | 6,688 |  |  | 12.62 |  |  |" in text
