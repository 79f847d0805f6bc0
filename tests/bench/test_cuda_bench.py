"""Rates of gathers on a GPU, from the rates that were measured."""

import pytest

from bench.cuda_ceilings import Ceilings

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
