"""Builds the compiled operators; all metadata is in pyproject.toml.

BITGNN_BUILD chooses what to compile:
    auto  (default) the CPU library, or nothing with a warning where there is no C++ compiler;
          the CUDA library too where its sources, nvcc and a torch with CUDA are all present.
    cpu   the CPU library only; no compiler is an error.
    cuda  both libraries; a missing compiler, nvcc or CUDA torch is an error.
    none  nothing: the Python reference kernels do the work.
TORCH_CUDA_ARCH_LIST (such as "8.0;9.0+PTX") narrows the GPUs that the CUDA library is compiled for.
BITGNN_SANITIZE=1 compiles with the address and undefined-behaviour sanitizers.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import sysconfig
import warnings
from pathlib import Path
from typing import Any

from setuptools import setup

ROOT = Path(__file__).resolve().parent
CSRC = ROOT / "csrc"
MODES = ("auto", "cpu", "cuda", "none")
# BuildExtension itself adds Py_LIMITED_API for Python 3.10 and later.
MACROS = [
    ("TORCH_TARGET_VERSION", "0x020b000000000000"),  # torch 2.11 and later
    ("TORCH_STABLE_ONLY", None),  # headers outside the stable ABI are errors
]
# The kernels choose their instruction set at run time, function by function, so no -march here.
# Contraction to FMA is off: results are defined step by step and equal the reference bit for bit.
# Messages name files of this tree, wherever it was built.
PREFIX_MAP = f"-ffile-prefix-map={ROOT}/="
CXX_FLAGS = [
    PREFIX_MAP,
    "-std=c++17",
    "-O3",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
]
SANITIZE_FLAGS = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-O1", "-g"]
NVCC_FLAGS = [
    "-Xcompiler",
    PREFIX_MAP,
    "-std=c++17",
    "-O3",
    "--fmad=false",
    "--expt-relaxed-constexpr",  # helpers such as words_for serve host and device
]
# Ampere and, as PTX, whatever comes later; Hopper.
CUDA_TARGETS = "8.0+PTX;9.0"
HOPPER = "90"


def build_mode() -> str:
    """BITGNN_BUILD, checked."""
    mode = os.environ.get("BITGNN_BUILD", "auto") or "auto"
    if mode not in MODES:
        sys.exit(f"BITGNN_BUILD must be one of {', '.join(MODES)}, got {mode!r}")
    return mode


def cxx_compiler() -> str | None:
    """Path of the C++ compiler that the build would use, None when there is none."""
    command = os.environ.get("CXX") or sysconfig.get_config_var("CXX") or "c++"
    return shutil.which(shlex.split(command)[0])


def sources(*patterns: str) -> list[str]:
    """Sorted sources below csrc, relative to the root as setuptools wants them."""
    found = [path for pattern in patterns for path in CSRC.glob(pattern)]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def missing_for_cuda() -> str:
    """What the CUDA library lacks here, as a phrase; empty when nothing."""
    import torch
    from torch.utils.cpp_extension import CUDA_HOME

    if not sources("*/cuda/**/*.cu"):
        return f"{CSRC.name} holds no CUDA kernels"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} was built without CUDA"
    if CUDA_HOME is None or not (Path(CUDA_HOME) / "bin" / "nvcc").exists():
        return "nvcc was not found (set CUDA_HOME)"
    return ""


def target_flags() -> list[str]:
    """Flags of nvcc for the GPUs of TORCH_CUDA_ARCH_LIST; torch adds none where there are some."""
    wanted = os.environ.get("TORCH_CUDA_ARCH_LIST") or CUDA_TARGETS
    flags = []
    for target in re.split(r"[;,\s]+", wanted.strip()):
        found = re.fullmatch(r"(\d+)\.(\d)a?(\+PTX)?", target)
        if found is None or int(found[1]) < 8:
            sys.exit(
                "TORCH_CUDA_ARCH_LIST must list compute capabilities from 8.0 on, such as "
                f"'{CUDA_TARGETS}', got {wanted!r}"
            )
        number = found[1] + found[2]
        # Hopper's own instructions need the target with an "a"; the macro says that they are there.
        real = number + "a" if number == HOPPER else number
        flags.append(f"-gencode=arch=compute_{real},code=sm_{real}")
        if found[3]:
            flags.append(f"-gencode=arch=compute_{number},code=compute_{number}")
        if number == HOPPER:
            flags.append("-DBITGNN_HOPPER")
    return flags


def extension(factory: Any, name: str, files: list[str], flags: Any) -> Any:
    """One library of operators, loaded with torch.ops.load_library rather than imported."""
    if not files:
        sys.exit(f"bitgnn: no sources for {name} below {CSRC.name}/")
    return factory(
        name,
        files,
        include_dirs=[str(CSRC)],
        define_macros=MACROS,
        depends=sources("**/*.h", "**/*.cuh"),
        extra_compile_args=flags,
        extra_link_args=SANITIZE_FLAGS[:1] if sanitize() else ["-Wl,-s"],
        py_limited_api=True,
    )


def sanitize() -> bool:
    """Whether BITGNN_SANITIZE asks for the sanitizers."""
    return os.environ.get("BITGNN_SANITIZE", "0") not in ("", "0")


def extensions(mode: str) -> list[Any]:
    """The libraries to build under ``mode``."""
    if mode == "none":
        return []
    if cxx_compiler() is None:
        message = "bitgnn: no C++ compiler found (install g++ or clang, or set CXX)"
        if mode != "auto":
            sys.exit(f"{message}; BITGNN_BUILD={mode} needs one")
        warnings.warn(f"{message}; only the slow reference kernels are installed", stacklevel=1)
        return []
    from torch.utils.cpp_extension import CppExtension, CUDAExtension

    cxx = CXX_FLAGS + (SANITIZE_FLAGS if sanitize() else [])
    cpu_files = sources("core/*.cpp", "*/cpu/**/*.cpp")
    built = [extension(CppExtension, "bitgnn._C_cpu", cpu_files, {"cxx": cxx})]
    if mode == "cpu":
        return built
    missing = missing_for_cuda()
    if missing and mode == "cuda":
        sys.exit(f"BITGNN_BUILD=cuda: {missing}")
    if not missing:
        targets = target_flags()
        macros = ["-DUSE_CUDA", *(flag for flag in targets if flag.startswith("-D"))]
        flags = {"cxx": [*cxx, *macros], "nvcc": [*NVCC_FLAGS, *targets, "-DUSE_CUDA"]}
        cuda_files = sources("*/cuda/**/*.cu", "*/cuda/**/*.cpp")
        built.append(extension(CUDAExtension, "bitgnn._C_cuda", cuda_files, flags))
    return built


def build_options(modules: list[Any]) -> dict[str, Any]:
    """Keyword arguments of setup() that only a compiled wheel needs."""
    if not modules:
        return {}
    from torch.utils.cpp_extension import BuildExtension

    return {
        "ext_modules": modules,
        "cmdclass": {"build_ext": BuildExtension.with_options(use_ninja=True)},
        "options": {"bdist_wheel": {"py_limited_api": "cp310"}},
    }


setup(**build_options(extensions(build_mode())))
