"""The doctor's report: names what is in use, what is missing and the cure; tells no folders."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import bitgnn
from bitgnn import _library, doctor


def test_report_names_versions_and_build(monkeypatch):
    monkeypatch.setenv("BITGNN_EXAMPLE", "7")
    text = doctor.report()
    info = _library.library_info()
    assert f"bitgnn: {bitgnn.__version__}" in text
    assert f"torch: {torch.__version__}" in text
    assert f"CPU capability in use: {info.cpu_capability or 'reference'}" in text
    assert f"torch threads: {torch.get_num_threads()}" in text
    assert "BITGNN_EXAMPLE=7" in text
    assert str(Path(bitgnn.__file__).parent) not in text
    assert str(Path.home()) not in text or Path.home() == Path("/")
    if info.cpu_library is not None:
        assert "cpu library: a product, an aggregation and an error work" in text


@pytest.mark.parametrize(
    ("status", "output", "message"),
    [
        (-11, "a product: works\nan aggregation", "the process died at an aggregation"),
        (-6, "", "the process died at its start"),
        (0, "a product: works\nan error: wrong result", "an error: wrong result"),
        (1, "a product", "a product; OSError: no such file"),
    ],
)
def test_operators_that_fail_are_told(monkeypatch, status, output, message):
    def run(command, **options):
        return subprocess.CompletedProcess(
            command, status, output, "Traceback\nOSError: no such file"
        )

    monkeypatch.setattr(doctor.subprocess, "run", run)
    assert doctor._tried("cpu") == f"PROBLEM: {message}"


def test_what_is_missing_comes_with_its_cure(tmp_path, monkeypatch):
    environ = {**os.environ, _library.DISABLE_VARIABLE: "1"}
    command = [sys.executable, "-m", "bitgnn.doctor"]
    run = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "CPU library: not loaded (reference kernels)" in run.stdout
    assert f"Unset {_library.DISABLE_VARIABLE}" in run.stdout
    monkeypatch.setattr(doctor, "package_version", lambda name: None)
    assert "scipy is not installed: pip install scipy" in doctor.missing()
