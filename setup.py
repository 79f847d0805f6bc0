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
import subprocess
import sys
import sysconfig
import warnings
from pathlib import Path
from typing import Any

from setuptools import setup

ROOT = Path(__file__).resolve().parent
CSRC = ROOT / "csrc"
sys.path.insert(0, str(CSRC))
import flags  # noqa: E402

FILES = "https://github.com/bitgnn/bitgnn/blob/main/"
IMAGES = "https://raw.githubusercontent.com/bitgnn/bitgnn/main/"
# Links and pictures of README.md that are relative to the repository.
LINK = re.compile(r"(!?)(\[[^\]]*\]\()(?!https?:|#)([^)]+)\)")
MODES = ("auto", "cpu", "cuda", "none")
# Reports need lines, not variables, which take a compiler longer.
SANITIZE_FLAGS = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-O1", "-g1"]
# Names the shared C++ library first, where a compiler would link it statically: errors in a copy of
# its own lose their words or end the process.
SHARED_CXX = ["-Wl,--no-as-needed", "-l:libstdc++.so.6", "-Wl,--as-needed"]
# An error of an operator in the library at sys.argv[1].
PROBE = """
import sys
import torch

torch.ops.load_library(sys.argv[1])
try:
    torch.ops.bitgnn.unpack(torch.zeros(1, 1, dtype=torch.int32), -1)
except RuntimeError as error:
    sys.exit(0 if "got -1" in str(error) else str(error))
sys.exit("no error was raised")
"""


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


def missing_for_cuda() -> str:
    """What the CUDA library lacks here, as a phrase; empty when nothing."""
    import torch
    from torch.utils.cpp_extension import CUDA_HOME

    if not flags.cuda_sources():
        return f"{CSRC.name} holds no CUDA kernels"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} was built without CUDA"
    if CUDA_HOME is None or not (Path(CUDA_HOME) / "bin" / "nvcc").exists():
        return "nvcc was not found (set CUDA_HOME)"
    return ""


def extension(factory: Any, name: str, files: list[str], arguments: Any, link: list[str]) -> Any:
    """One library of operators, loaded with torch.ops.load_library rather than imported."""
    if not files:
        sys.exit(f"bitgnn: no sources for {name} below {CSRC.name}/")
    return factory(
        name,
        files,
        include_dirs=[str(CSRC)],
        define_macros=flags.MACROS,
        depends=flags.sources("**/*.h", "**/*.cuh"),
        extra_compile_args=arguments,
        extra_link_args=SANITIZE_FLAGS[:1] if sanitize() else link,
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

    cxx = flags.CXX_FLAGS + (SANITIZE_FLAGS if sanitize() else [])
    cpu = "bitgnn._C_cpu", flags.cpu_sources(), {"cxx": cxx}, flags.LINK_FLAGS
    built = [extension(CppExtension, *cpu)]
    if mode == "cpu":
        return built
    missing = missing_for_cuda()
    if missing and mode == "cuda":
        sys.exit(f"BITGNN_BUILD=cuda: {missing}")
    if not missing:
        targets = flags.target_flags(os.environ.get("TORCH_CUDA_ARCH_LIST") or flags.CUDA_TARGETS)
        macros = ["-DUSE_CUDA", *(flag for flag in targets if flag.startswith("-D"))]
        nvcc = [*flags.NVCC_FLAGS, *targets, "-DUSE_CUDA"]
        arguments = {"cxx": [*cxx, *macros], "nvcc": nvcc}
        cuda = "bitgnn._C_cuda", flags.cuda_sources(), arguments, flags.CUDA_LINK_FLAGS
        built.append(extension(CUDAExtension, *cuda))
    return built


def error_problem(library: str) -> str:
    """What is wrong with an error of the CPU library, tried in a process apart; or nothing."""
    command = [sys.executable, "-W", "ignore", "-c", PROBE, library]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if run.returncode < 0:
        return f"the process died of signal {-run.returncode}"
    return run.stderr.strip()[-200:] or "no output" if run.returncode else ""


def checked_build() -> type:
    """The build command of torch, which does not leave a library whose errors end the process."""
    from torch.utils.cpp_extension import BuildExtension

    class CheckedBuild(BuildExtension.with_options(use_ninja=True)):  # type: ignore[misc]
        added: list[str] = []  # noqa: RUF012  (to the link lines of libraries after the first)

        def build_extension(self, ext: Any) -> None:
            ext.extra_link_args = [*ext.extra_link_args, *self.added]
            super().build_extension(ext)
            library = self.get_ext_fullpath(ext.name)
            if sanitize() or not ext.name.endswith("_cpu") or not error_problem(library):
                return
            CheckedBuild.added = SHARED_CXX
            ext.extra_link_args = [*ext.extra_link_args, *self.added]
            self.force = True
            super().build_extension(ext)
            problem = error_problem(library)
            if problem:
                sys.exit(
                    f"bitgnn: an error of the compiled operators does not reach Python: {problem}. "
                    "Set CXX to a compiler that links libstdc++ shared, or BITGNN_BUILD=none"
                )

    return CheckedBuild


def build_options(modules: list[Any]) -> dict[str, Any]:
    """Keyword arguments of setup() that only a compiled wheel needs."""
    if not modules:
        return {}
    return {
        "ext_modules": modules,
        "cmdclass": {"build_ext": checked_build()},
        "options": {"bdist_wheel": {"py_limited_api": "cp310"}},
    }


def description() -> str:
    """README.md for an index of packages, where relative links lead nowhere."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return LINK.sub(lambda m: f"{m[1]}{m[2]}{IMAGES if m[1] else FILES}{m[3]})", text)


setup(
    long_description=description(),
    long_description_content_type="text/markdown",
    **build_options(extensions(build_mode())),
)
