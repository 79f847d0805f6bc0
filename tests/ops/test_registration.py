"""Operators as PyTorch sees them: schemas, opcheck, torch.compile, gradients, packages."""

import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch._subclasses import FakeTensorMode

import bitgnn
from bitgnn import BitAdjacency, BitTensor
from bitgnn._library import library_info, load_libraries
from bitgnn.ops import _register, bmm, bspmm
from bitgnn.ops.reference import OPERATORS
from bitgnn.ops.reference.table import HOST_TABLE, TABLE

REFERENCES = {name: row.reference for name, row in (TABLE | HOST_TABLE).items()}
CAPABILITIES = ("portable", "avx2", "avx512", "amx")


def run(program, environment, *options, **more):
    command = [sys.executable, *options, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, **more)


@pytest.mark.skipif(library_info().cpu_library is None, reason="no compiled library is loaded")
@pytest.mark.parametrize("name", REFERENCES)
def test_schema_is_that_of_the_reference(name):
    expected = torch.library.infer_schema(REFERENCES[name], mutates_args=()).replace(
        "SymInt", "int"
    )
    found = str(getattr(torch.ops.bitgnn, name).default._schema).replace("SymInt", "int")
    assert found == f"bitgnn::{name}{expected}"


@pytest.mark.skipif(library_info().cpu_library is None, reason="no compiled library is loaded")
@pytest.mark.parametrize("name", OPERATORS)
def test_compiled_kernel_is_the_one_that_runs(name, device):
    # Else the fallback would be compared with itself.
    key = device.type.upper()
    assert torch._C._dispatch_has_kernel_for_dispatch_key(f"bitgnn::{name}", key)


@pytest.mark.parametrize("name", REFERENCES)
def test_opcheck(name, device, sampler):
    arguments = sampler(seed=1).arguments(name, 6, 70, 9, optional=True)
    arguments = {k: v.to(device) if hasattr(v, "to") else v for k, v in arguments.items()}
    results = torch.library.opcheck(getattr(torch.ops.bitgnn, name).default, (), arguments)
    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.parametrize("name", OPERATORS)
def test_fake_shape_and_dtype_and_no_gradient(name, sampler):
    for seed in range(4):
        arguments = sampler(seed=seed).arguments(name, 6, 70, 9, optional=seed == 2 or None)
        for value in arguments.values():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                value.requires_grad_()
        operator = getattr(torch.ops.bitgnn, name)
        real = operator(**arguments)
        with FakeTensorMode() as mode:
            fake = operator(
                **{
                    k: mode.from_tensor(v) if isinstance(v, torch.Tensor) else v
                    for k, v in arguments.items()
                }
            )
        real, fake = (r if isinstance(r, tuple) else (r,) for r in (real, fake))
        for mine, theirs in zip(fake, real, strict=True):
            assert mine.shape == theirs.shape
            assert mine.dtype == theirs.dtype
            assert not theirs.requires_grad


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_whole_graph(dynamic, device):
    torch.manual_seed(0)
    w = BitTensor.from_float(torch.randn(40, 70), scale="mean").to(device)
    edge_index = torch.randint(12, (2, 50))
    adjacency = BitAdjacency.from_edge_index(edge_index, 12, normalize="sym", coalesce=True)
    adjacency = adjacency.to(device)
    # Layouts are built from the data, which a graph cannot trace.
    adjacency.frdc()
    adjacency.sliced()

    def layer(x, layout):
        hidden = bmm.fbb(x, w)
        return bspmm.bbf(hidden, adjacency, bias=torch.ones(40, device=device), layout=layout)

    x = torch.randn(12, 70, device=device)
    for layout in (None, "csr", "frdc", "sliced"):
        torch._dynamo.reset()  # each layout is a graph of its own, and their number is limited
        compiled = torch.compile(layer, fullgraph=True, dynamic=dynamic, backend="aot_eager")
        assert torch.equal(compiled(x, layout), layer(x, layout))


def test_compile_returns_bit_tensors():
    compiled = torch.compile(
        lambda x: BitTensor.from_float(x, scale="mean"), fullgraph=True, backend="aot_eager"
    )
    x = torch.randn(5, 33)
    assert compiled(x).equal(BitTensor.from_float(x, scale="mean"))


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_capability(capability, tmp_path):
    if capability not in library_info().available_cpu_capabilities:
        pytest.skip(f"this CPU or build lacks {capability}")
    if capability == library_info().cpu_capability:
        pytest.skip(f"{capability} is what the tests of this process run on")
    environment = os.environ | {"BITGNN_CPU_CAPABILITY": capability}
    # Ragged sizes of every operator; `.ci/run` repeats all tests marked as kernels.
    tests = str(Path(__file__).with_name("test_kernels.py"))
    options = ["-q", "-x", "-p", "no:cacheprovider", "-k", "sizes and ragged", tests]
    check = (
        "import sys, pytest, torch, bitgnn;"
        f"assert torch.ops.bitgnn.cpu_capability() == {capability!r};"
        f"sys.exit(pytest.main({options!r}))"
    )
    # Not from the checkout, whose sources would hide the installed package.
    result = run(check, environment, cwd=tmp_path)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]


SMALL = """
import torch, bitgnn
from bitgnn import BitAdjacency, BitTensor
from bitgnn.ops import _register, bmm, bspmm
x = torch.linspace(-1, 1, 6 * 40).view(6, 40)
w = BitTensor.from_float(x.flip(0), scale="mean")
adjacency = BitAdjacency.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 2]]), 6)
result = bmm.fbf(x, w).tolist(), bspmm.bbf(bmm.fbb(x, w), adjacency).tolist()
"""


def test_reference_serves_when_binaries_are_switched_off():
    environment = os.environ | {"BITGNN_DISABLE_BINARY": "1"}
    report = "print(result); print(bitgnn._library.library_info().cpu_capability)"
    result = run(SMALL + report, environment, "-W", "error")
    assert result.returncode == 0, result.stderr
    scope: dict = {}
    exec(SMALL, scope)
    assert result.stdout.splitlines() == [str(scope["result"]), "None"]


def test_missing_library_warns_once_where_the_user_imports(tmp_path):
    source = Path(bitgnn.__file__).parent
    shutil.copytree(source, tmp_path / "bitgnn", ignore=shutil.ignore_patterns("*.so", "*.pyd"))
    script = tmp_path / "script.py"
    script.write_text("import bitgnn\nimport bitgnn.ops\n" + SMALL)
    environment = {k: v for k, v in os.environ.items() if k != "BITGNN_DISABLE_BINARY"}
    result = subprocess.run(
        [sys.executable, "-W", "always::RuntimeWarning", str(script)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("RuntimeWarning") == 1
    assert f"{script}:1: RuntimeWarning: bitgnn runs its slow reference" in result.stderr
    assert "BITGNN_BUILD=cpu pip install" in result.stderr


def test_device_without_kernels_warns_once(monkeypatch):
    monkeypatch.setattr(_register, "_ANNOUNCED", set())
    fallback = _register._announced("pack", OPERATORS["pack"])
    x = torch.randn(3, 40)
    with pytest.warns(RuntimeWarning, match="bitgnn::pack: no compiled kernels for cpu"):
        first = fallback(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(fallback(x), first)


def test_missing_and_broken_libraries_are_reported_with_cause_and_cure(tmp_path, monkeypatch):
    monkeypatch.delenv("BITGNN_DISABLE_BINARY", raising=False)
    cpu, cuda, problem = load_libraries.__wrapped__(tmp_path)
    assert (cpu, cuda) == (None, None)
    assert all(part in problem for part in (str(tmp_path), "pip install", "BITGNN_BUILD=cpu"))
    broken = tmp_path / "_C_cpu.abi3.so"
    broken.write_bytes(b"not a library")
    cpu, _, problem = load_libraries.__wrapped__(tmp_path)
    assert cpu is None
    assert str(broken) in problem
    assert "pip install" in problem


def test_version():
    assert bitgnn.__version__ == "0.1.0"
