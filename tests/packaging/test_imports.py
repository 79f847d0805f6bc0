"""What imports and commands load, and what they say of a torch or a CUDA that does not suit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import bitgnn
from bitgnn import _library
from bitgnn._library import library_info

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(bitgnn.__file__).parent
HEAVY = [
    "IPython", "matplotlib", "optuna", "pandas", "PIL", "pydantic", "rich", "scipy", "sklearn",
    "sqlalchemy", "sympy", "torch._dynamo", "torch._inductor", "torch.distributed.fsdp",
    "torch_geometric", "transformers", "typer", "yaml",
]  # fmt: skip
LOADED = f"print(*(name for name in {HEAVY} if name in sys.modules))"
COMMAND = "import sys, bitgnn_command; sys.argv = ['bitgnn', *{!r}]; bitgnn_command.main()"


def run(code, folder, **environ):
    """A process apart that finds the tested package, whatever the folder holds."""
    environ = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), **environ}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environ)


def test_import_loads_nothing_heavy(tmp_path):
    code = f"import sys, torch; before = set(sys.modules); import bitgnn; {LOADED}"
    done = run(code.replace("in sys.modules", "in set(sys.modules) - before"), tmp_path)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--help"], 0),
        ([], 0),
        (["--version"], 0),
        (["tune", "--help"], 0),
        (["distill", "--size", "3"], 2),
    ],
)
def test_command_line_is_read_without_torch(tmp_path, arguments, status):
    done = run(
        f"import atexit\natexit.register(lambda: print('torch' in sys.modules, file=sys.stderr))\n"
        f"{COMMAND.format(arguments)}",
        tmp_path,
    )
    assert done.returncode == status, done.stderr
    assert done.stderr.endswith("False\n")
    assert "bitgnn" in done.stdout + done.stderr


def test_command_imports_the_whole_package_for_its_job(tmp_path):
    code = "import atexit\natexit.register(lambda: print(sys.modules['bitgnn'].BitTensor))\n"
    done = run(code + COMMAND.format(["doctor"]), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("<class 'bitgnn.bits.tensor.BitTensor'>\n")


def test_range_of_torch_is_that_of_the_metadata():
    first, last = _library.FIRST_TORCH, _library.LAST_TORCH
    expected = f">={first[0]}.{first[1]},<{last[0]}.{last[1] + 1}"
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert text.count(f'"torch{expected}"') == 2  # to build, to run
    assert f'("TORCH_TARGET_VERSION", "0x{first[0]:02x}{first[1]:02x}000000000000")' in (
        ROOT / "csrc" / "flags.py"
    ).read_text(encoding="utf-8")


def test_older_torch_is_refused_in_one_sentence(tmp_path):
    fake = "import torch; torch.__version__ = '2.10.1+cu130'\n"
    done = run(f"{fake}import bitgnn", tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: bitgnn {bitgnn.__version__} supports torch {_library.TORCH_RANGE}, but "
        "torch 2.10.1+cu130 is installed; run `pip install 'torch>=2.11,<2.14'`"
    )
    done = run(fake + COMMAND.format(["doctor"]), tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("bitgnn: error: bitgnn")
    assert done.stderr.count("\n") == 1


def test_newer_torch_is_warned_of_in_one_sentence(tmp_path):
    code = "import torch; torch.__version__ = '3.0.0a0+git1'; import bitgnn"
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(
        f"<string>:1: RuntimeWarning: bitgnn {bitgnn.__version__} supports torch "
        f"{_library.TORCH_RANGE}, but torch 3.0.0a0+git1 is installed; it has not been tested"
    )


@pytest.fixture
def with_cuda_library(tmp_path):
    """The package with a CUDA library that no machine can load."""
    folder = tmp_path / "bitgnn"
    folder.mkdir()
    for path in PACKAGE.iterdir():
        if not path.name.startswith("_C_cuda"):
            (folder / path.name).symlink_to(path)
    (folder / "_C_cuda.abi3.so").write_text("not a library")
    return tmp_path


@pytest.mark.skipif(library_info().cpu_library is None, reason="no compiled library is loaded")
@pytest.mark.parametrize(("cuda", "has_gpu"), [(None, False), ("13.0", False), ("13.0", True)])
def test_cuda_library_without_a_driver_leaves_the_cpu_alone(with_cuda_library, cuda, has_gpu):
    code = (
        f"import torch; torch.version.cuda = {cuda!r}\n"
        f"torch.cuda.is_available = lambda: {has_gpu}\n"
        "import bitgnn; from bitgnn.ops import bmm\n"
        "x = bitgnn.BitTensor.from_float(torch.ones(2, 9))\n"
        "print(bitgnn.__file__, bmm.bbf(x, x).tolist(), bitgnn._library.library_info().problem)"
    )
    done = run(code, with_cuda_library, PYTHONPATH=str(with_cuda_library))
    assert done.returncode == 0, done.stderr
    file = with_cuda_library / "bitgnn" / "__init__.py"
    begin, problem = done.stdout.split("]] ")
    assert begin == f"{file} [[9.0, 9.0], [9.0, 9.0"
    assert done.stderr == ""
    assert ("_C_cuda.abi3.so does not load" in problem) is has_gpu
    assert ("BITGNN_BUILD=cuda pip install" in problem) is has_gpu
