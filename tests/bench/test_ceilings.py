"""The rates of the CPU's memory, and what a missing compiler does."""

import shutil

import pytest

from bench import ceilings as ceilings_module
from bench.ceilings import Ceilings, CeilingsError, compiler
from bench.models.floor import CpuRates
from bench_models import main


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_rates_of_memory(monkeypatch):
    monkeypatch.setattr("bench.models.floor.MEASURED_BYTES", 2**20)
    rates = CpuRates(Ceilings(), 1)
    assert rates.memory_seconds(2**20, 0) > 0
    assert rates.gather_seconds(0, 10, 16) == 0
    assert rates.gather_seconds(2000, 10, 128) == pytest.approx(
        4 * rates.gather_seconds(1000, 10, 64)
    )


def test_a_missing_compiler_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(ceilings_module.shutil, "which", lambda command: None)
    with pytest.raises(CeilingsError, match=r"no C\+\+ compiler found: install g\+\+ or clang"):
        compiler()
    arguments = ["--quick", "--only", "floor", "--output", str(tmp_path / "models.json")]
    assert main(arguments) == 1
    assert "no C++ compiler found" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
