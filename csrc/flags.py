"""Sources and compiler flags of the compiled operators, for setup.py and scripts/build_cuda.sh.

Run as: python csrc/flags.py TARGET...      prints flags of nvcc, one a line, for targets such as
"8.0+PTX". With --sources instead, it prints the sources of the CUDA library; with --link, the flags
of its linker.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CSRC = Path(__file__).resolve().parent
ROOT = CSRC.parent

# BuildExtension itself adds Py_LIMITED_API for Python 3.10 and later.
LIMITED_API = ("Py_LIMITED_API", "0x030a0000")
MACROS = [
    ("TORCH_TARGET_VERSION", "0x020b000000000000"),  # torch 2.11 and later
    ("TORCH_STABLE_ONLY", None),  # headers outside the stable ABI are errors
]
# Messages name files of this tree, wherever it was built.
PREFIX_MAP = f"-ffile-prefix-map={ROOT}/="
# The kernels choose their instruction set at run time, function by function, so no -march here.
# Contraction to FMA is off: results are defined step by step and equal the reference bit for bit.
CXX_FLAGS = [
    PREFIX_MAP,
    "-std=c++17",
    "-O3",
    "-g0",  # Python's own flags ask for debug information, which takes long and is stripped
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
]
NVCC_FLAGS = [
    "-Xcompiler",
    PREFIX_MAP,
    "-std=c++17",
    "-O3",
    "--fmad=false",
    "--expt-relaxed-constexpr",  # helpers such as words_for serve host and device
    "--compress-mode=size",  # device code unpacks where a file's kernels are first used
]
# Functions of the runtime that core/cuda/dry_run.cpp stands in front of.
WRAPPED = [
    "__cudaRegisterFunction",
    "__cudaPushCallConfiguration",
    "__cudaPopCallConfiguration",
    "__cudaGetKernel",
    "__cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cudaFuncGetAttributes",
    "cudaFuncSetAttribute",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    "cudaMemsetAsync",
    "cudaGetLastError",
    "cudaPeekAtLastError",
]
# Libraries register their operators when they are loaded; nothing is looked up by name.
LINK_FLAGS = [f"-Wl,--version-script={CSRC / 'exports.map'}", "-Wl,-s"]
CUDA_LINK_FLAGS = [*LINK_FLAGS, *(f"-Wl,--wrap={name}" for name in WRAPPED)]
# Ampere and, as PTX, whatever comes later; Hopper.
CUDA_TARGETS = "8.0+PTX;9.0"
HOPPER = "90"


def sources(*patterns: str) -> list[str]:
    """Sorted sources below csrc, relative to the root as setuptools wants them."""
    found = [path for pattern in patterns for path in CSRC.glob(pattern)]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def cpu_sources() -> list[str]:
    """Of the CPU library, which also defines the operators."""
    return sources("*/*.cpp", "*/cpu/**/*.cpp")


def cuda_sources() -> list[str]:
    """Of the CUDA library."""
    return sources("*/*.cpp", "*/cuda/**/*.cu", "*/cuda/**/*.cpp")


HALF_OPERATORS = ("HALF_OPERATORS", "HALF_CONVERSIONS", "BFLOAT16_CONVERSIONS", "HALF2_OPERATORS")


def target_flags(wanted: str) -> list[str]:
    """Flags of nvcc for compute capabilities.

    Args:
        wanted: from 8.0 on, such as ``"8.0+PTX;9.0"``.
    """
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


def nvcc_command(wanted: str) -> list[str]:
    """All flags of nvcc where torch's build tools do not add theirs.

    Those tools leave the conversions and operators of half precisions out, too.
    """
    macros = [LIMITED_API, *MACROS, *((f"__CUDA_NO_{name}__", None) for name in HALF_OPERATORS)]
    return [
        *NVCC_FLAGS,
        *target_flags(wanted),
        *(f"-D{name}" if value is None else f"-D{name}={value}" for name, value in macros),
        "-DUSE_CUDA",
        f"-I{CSRC}",
        "-Xcompiler",
        "-fPIC,-fvisibility=hidden,-Wall,-Wextra",
    ]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--sources"]:
        print(*cuda_sources(), sep="\n")
    elif sys.argv[1:2] == ["--link"]:
        print(*CUDA_LINK_FLAGS, sep="\n")
    else:
        print(*nvcc_command(" ".join(sys.argv[1:]) or CUDA_TARGETS), sep="\n")
