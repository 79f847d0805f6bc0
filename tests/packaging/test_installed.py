"""The installed package: the compiled library is loaded and belongs to the tested installation."""

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch

import bitgnn
from bitgnn._library import library_info

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_BINARIES = os.environ.get("BITGNN_BUILD") == "none"


def installed_editable() -> bool:
    text = metadata.distribution("bitgnn").read_text("direct_url.json") or "{}"
    return bool(json.loads(text).get("dir_info", {}).get("editable"))


def test_tests_run_against_the_installation():
    inside = Path(bitgnn.__file__).resolve().is_relative_to(ROOT)
    assert inside == installed_editable(), f"{bitgnn.__file__} hides the installed package"
    assert bitgnn.__version__ == metadata.version("bitgnn")


@pytest.mark.skipif(WITHOUT_BINARIES, reason="built with BITGNN_BUILD=none")
def test_compiled_library_is_loaded():
    info = library_info()
    assert info.problem == ""
    assert info.cpu_library is not None
    assert info.cpu_library.name == "_C_cpu.abi3.so"
    assert info.cpu_library.parent == Path(bitgnn.__file__).parent
    assert info.cpu_capability in info.available_cpu_capabilities
    for name in ("bitgnn::pack", "bitgnn::bmm_bbb", "bitgnn::bspmm_bbb"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU")


@pytest.mark.skipif(not WITHOUT_BINARIES, reason="needs an installation with BITGNN_BUILD=none")
def test_without_binaries_there_is_one_warning_and_right_results(tmp_path):
    code = (
        "import torch, bitgnn; from bitgnn.ops import bmm\n"
        "x = bitgnn.BitTensor.from_float(torch.randn(5, 70)); y = x.to_float()\n"
        "assert torch.equal(bmm.bbf(x, x), y @ y.t()); bmm.bbf(x, x)\n"
    )
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("RuntimeWarning") == 1, run.stderr
    assert "BITGNN_BUILD=cpu pip install" in run.stderr
