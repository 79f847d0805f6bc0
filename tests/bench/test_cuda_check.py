"""Runs of the CUDA tests and of sanitizers: what is counted and named."""

import pytest

import check_cuda as cuda_check

TESTS = """
import time

import pytest


def test_right():
    pass


def test_wrong():
    assert 1 == 2


@pytest.mark.skip(reason="no reason")
def test_left_out():
    pass


def test_slow():
    time.sleep(60)
"""
REPORT = """
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void bitgnn::cuda::conv_mma_kernel<bitgnn::cuda::Tile<16, 32>, 1>(Args, Plan)+0x2c0
=========     by thread (1,0,0) in block (0,0,0)
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void bitgnn::cuda::conv_mma_kernel<bitgnn::cuda::Tile<8, 32>, 2>(Args, Plan)+0x1a0
========= Invalid __global__ read of size 16 bytes
=========     at pack_kernel(const float *, int)+0x40
=========         Host Frame: launch(int)+0x40 in library.so
"""


@pytest.fixture
def tests(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)  # the child has no pytest-xdist
    path = tmp_path / "test_some.py"
    path.write_text(TESTS)
    return str(path)


def test_outcomes_are_counted(tests):
    found = cuda_check.run_tests([tests, "-k", "not slow", "-p", "no:xdist"])
    assert found["status"] == 1
    assert found["outcomes"] == {"passed": 1, "failed": 1, "skipped": 1}
    assert found["skipped_because"] == {"no reason": 1}
    assert [name.rpartition("::")[2] for name in found["failures"]] == ["test_wrong"]
    assert "problem" not in found


def test_kernels_are_named_with_how_often_they_are_reported():
    assert cuda_check.kernels_reported(REPORT) == {
        "bitgnn::cuda::conv_mma_kernel": 2,
        "pack_kernel": 1,
    }
