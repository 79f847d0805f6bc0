"""Finds and loads the compiled operators; says exactly what is missing and how to get it."""

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

DISABLE_VARIABLE = "BITGNN_DISABLE_BINARY"
"""Environment variable; "1" leaves the compiled operators out and uses the reference."""
CUDA_VARIABLE = "BITGNN_CUDA_LIBRARY"
"""Environment variable: the folder of a CUDA library for dry runs."""

_CURE = (
    "Reinstall with {compiler} at hand (`BITGNN_BUILD={build} pip install --force-reinstall "
    "--no-deps bitgnn`, or `BITGNN_BUILD={build} pip install .` in a checkout) to get the "
    "compiled operators."
)

_CURES = {
    "_C_cpu": _CURE.format(compiler="a C++ compiler", build="cpu"),
    "_C_cuda": _CURE.format(compiler="a C++ compiler and the CUDA toolkit", build="cuda"),
}


@dataclass(frozen=True)
class LibraryInfo:
    """What was loaded.

    Attributes:
        cpu_library: path of the loaded CPU library, None without one.
        cuda_library: path of the loaded CUDA library, None without one.
        cpu_capability: instruction set that CPU kernels use ("portable", "avx2", "avx512"),
            None without a CPU library.
        available_cpu_capabilities: instruction sets that this CPU and library support.
        problem: what is missing, why, and the cure; empty when nothing is.
        disabled: whether the environment switched the compiled operators off.
    """

    cpu_library: Path | None
    cuda_library: Path | None
    cpu_capability: str | None
    available_cpu_capabilities: tuple[str, ...]
    problem: str
    disabled: bool


@cache
def load_libraries(folder: Path | None = None) -> tuple[Path | None, Path | None, str]:
    """Load the libraries found in ``folder`` (the package's own by default), once.

    Returns:
        Path of the CPU library, path of the CUDA library (None where not loaded), and a text that
        names what could not be loaded, why, and the cure (empty when all is well).
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


def _survive_forks() -> None:
    """Let forked processes compute with one thread where their parent's pools may have started.

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

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_child=in_child)


_survive_forks()


def _load(folder: Path, name: str) -> tuple[Path | None, str]:
    """Load ``folder/name*.so`` (or ``.pyd``, ``.dylib``); path or None, and the problem."""
    found = [p for p in sorted(folder.glob(f"{name}*")) if p.suffix in {".so", ".pyd", ".dylib"}]
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
    """Load the CUDA library where torch may have no CUDA; what is wrong, empty when nothing is.

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
    runtimes = ["libcudart.so.13", *(f"{h}/lib64/libcudart.so.13" for h in homes if h)]
    problem = ""
    for name in runtimes:
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


def library_info() -> LibraryInfo:
    """Report which compiled libraries are in use; see :class:`LibraryInfo`."""
    cpu, cuda, problem = load_libraries()
    if cpu is not None and not torch.cuda.is_available():
        problem = ""  # at most one of the CUDA library, which nothing would call
    capability, available = None, ""
    if cpu is not None:
        capability = torch.ops.bitgnn.cpu_capability()
        available = torch.ops.bitgnn.available_cpu_capabilities()
    return LibraryInfo(
        cpu_library=cpu,
        cuda_library=cuda,
        cpu_capability=capability,
        available_cpu_capabilities=tuple(filter(None, available.split(","))),
        problem=problem,
        disabled=os.environ.get(DISABLE_VARIABLE) == "1",
    )
