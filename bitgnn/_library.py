"""The installed torch and the compiled operators: checked, loaded, reported."""

import ctypes
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from bitgnn._version import __version__

FIRST_TORCH, LAST_TORCH = (2, 11), (2, 13)
"""Oldest minor release of torch, which pyproject.toml requires, and the newest one tested."""

DISABLE_VARIABLE = "BITGNN_DISABLE_BINARY"
"""Environment variable; "1" leaves the compiled operators out and uses the reference."""
CUDA_VARIABLE = "BITGNN_CUDA_LIBRARY"
"""Environment variable: the folder of a CUDA library for dry runs."""

_CURES = {
    f"_C_{build}": f"Compile the operators: with {compiler} at hand run `BITGNN_BUILD={build} pip "
    "install --force-reinstall --no-deps .` in a checkout or the unpacked archive of sources."
    for build, compiler in {
        "cpu": "a C++ compiler",
        "cuda": "a C++ compiler and the CUDA toolkit",
    }.items()
}


def check_torch() -> None:
    """Refuse a torch that is too old: it lacks functions that the compiled operators call.

    A newer one keeps the stable ABI; ``bitgnn doctor`` says which one was tested.
    """
    if _installed_torch() < FIRST_TORCH:
        oldest = f"{FIRST_TORCH[0]}.{FIRST_TORCH[1]}"
        raise ImportError(
            f"bitgnn {__version__} needs torch {oldest} or later, but torch {torch.__version__} is "
            f"installed; run `pip install 'torch>={oldest}'`"
        )


def is_untested_torch() -> bool:
    """True for a torch that is newer than the newest tested one."""
    return _installed_torch() > LAST_TORCH


def _installed_torch() -> tuple[int, int]:
    number = re.match(r"(\d+)\.(\d+)", torch.__version__)
    return (int(number[1]), int(number[2])) if number else LAST_TORCH


def _survive_forks() -> None:
    """Use one thread in forked processes whose parent may have started thread pools.

    The threads of a pool do not survive a fork, and OpenMP would wait for them for ever.
    """
    had_threads = False

    def before() -> None:
        nonlocal had_threads
        tasks = Path("/proc/self/task")
        had_threads = not tasks.is_dir() or len(list(tasks.iterdir())) > 1

    def in_child() -> None:
        if had_threads:
            torch.set_num_threads(1)

    os.register_at_fork(before=before, after_in_child=in_child)


_survive_forks()


@cache
def load_libraries(folder: Path | None = None) -> tuple[Path | None, Path | None, str]:
    """Load the libraries found in ``folder`` (the package's own by default), once.

    Gives the paths of the CPU and the CUDA library, None where not loaded, and a text that names
    what could not be loaded, why, and the cure (empty when all is well).
    """
    if os.environ.get(DISABLE_VARIABLE) == "1":
        return None, None, f"{DISABLE_VARIABLE}=1 switched the compiled operators off."
    folder = Path(__file__).parent if folder is None else folder
    cpu, problem = _load(folder, "_C_cpu")
    # Whether a GPU is there is not asked: that would start its driver, in every import.
    if cpu is None or torch.version.cuda is None:
        return cpu, None, problem
    cuda, problem = _load(folder, "_C_cuda")
    return cpu, cuda, problem


def _load(folder: Path, name: str) -> tuple[Path | None, str]:
    """Load ``folder/name*.so``; return its path or None, and the problem."""
    found = sorted(folder.glob(f"{name}*.so"))
    if not found:
        return None, f"No compiled library {name}* lies in {folder}. {_CURES[name]}"
    path = found[0]
    try:
        torch.ops.load_library(str(path))
    except (OSError, RuntimeError) as error:
        # torch says that it failed; why is in the error beneath.
        reason = f"{error} ({error.__cause__})" if error.__cause__ else str(error)
        return None, f"The compiled library {path} does not load: {reason}. {_CURES[name]}"
    return path, ""


@cache
def load_for_dry_runs() -> str:
    """Load the CUDA library without CUDA in torch; return the problem, empty if there is none.

    Kernels cannot run then, but launchers can say what they would launch. The runtime library of
    CUDA must be there: torch's wheels with CUDA and the CUDA toolkit bring it.
    """
    if load_libraries()[1] is not None:
        return ""
    folder = Path(os.environ.get(CUDA_VARIABLE) or Path(__file__).parent)
    found = sorted(folder.glob("_C_cuda*.so"))
    if not found:
        return f"no compiled library _C_cuda* lies in {folder} (set {CUDA_VARIABLE})"
    homes = [os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
    problem = ""
    for name in ["libcudart.so.13", *(f"{h}/lib64/libcudart.so.13" for h in homes if h)]:
        try:
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
            break
        except OSError as error:
            problem = f"{error}"
    else:
        return f"CUDA's runtime does not load: {problem}"
    try:
        # What is missing of torch's CUDA is never called.
        ctypes.CDLL(str(found[0]), mode=os.RTLD_LAZY)
    except OSError as error:
        return f"{found[0]} does not load: {error}"
    return ""


@dataclass(frozen=True)
class LibraryInfo:
    """The loaded libraries; paths and CPU capability may be None.

    Capabilities are "portable", "avx2", "avx512" and "amx", which is "avx512" with 8-bit products
    on AMX tiles.

    ``problem`` is what is missing, why, and the cure, empty when nothing is; ``disabled`` whether
    the environment switched the compiled operators off.
    """

    cpu_library: Path | None
    cuda_library: Path | None
    cpu_capability: str | None
    available_cpu_capabilities: tuple[str, ...]
    problem: str
    disabled: bool


def library_info() -> LibraryInfo:
    """Describe the compiled libraries in use."""
    cpu, cuda, problem = load_libraries()
    if cpu is not None and not torch.cuda.is_available():
        problem = ""  # at most one of the CUDA library, which nothing would call
    capability, available = None, ""
    if cpu is not None:
        capability = torch.ops.bitgnn.cpu_capability()
        available = torch.ops.bitgnn.available_cpu_capabilities()
    capabilities = tuple(filter(None, available.split(",")))
    disabled = os.environ.get(DISABLE_VARIABLE) == "1"
    return LibraryInfo(cpu, cuda, capability, capabilities, problem, disabled)
