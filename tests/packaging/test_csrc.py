"""The kernels' house: the build's flags and sources, rooms, and where devices are asked."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parents[2] / "csrc"
MOST_FILES = 25  # that a listing shows
SUFFIXES = (".h", ".cuh", ".cu", ".cpp")
FILES = [path for path in sorted(CSRC.rglob("*")) if path.suffix in SUFFIXES]


@pytest.fixture(scope="module")
def flags():
    spec = importlib.util.spec_from_file_location("flags", CSRC / "flags.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("8.0", ["-gencode=arch=compute_80,code=sm_80"]),
        (
            "8.0+PTX;9.0a",
            [
                "-gencode=arch=compute_80,code=sm_80",
                "-gencode=arch=compute_80,code=compute_80",
                "-gencode=arch=compute_90a,code=sm_90a",
                "-DBITGNN_HOPPER",
            ],
        ),
        (
            "10.0 12.0",
            ["-gencode=arch=compute_100,code=sm_100", "-gencode=arch=compute_120,code=sm_120"],
        ),
    ],
)
def test_flags_of_targets(flags, wanted, expected):
    assert flags.target_flags(wanted) == expected


@pytest.mark.parametrize("wanted", ["7.5", "sm_90", "9"])
def test_wrong_targets(flags, wanted):
    with pytest.raises(SystemExit, match=f"from 8.0 on.*got '{wanted}'"):
        flags.target_flags(wanted)


def test_every_source_belongs_to_one_library(flags):
    built = [*flags.cpu_sources(), *flags.cuda_sources()]
    assert len(built) == len(set(built))
    found = [path for path in FILES if path.suffix in (".cu", ".cpp")]
    assert sorted(built) == sorted(str(path.relative_to(CSRC.parent)) for path in found)


def test_the_command_prints_flags_and_sources(flags):
    run = [sys.executable, str(CSRC / "flags.py")]
    printed = subprocess.run([*run, "8.0"], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == flags.nvcc_command("8.0")
    printed = subprocess.run([*run, "--sources"], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == flags.cuda_sources()


def test_listings_are_short():
    folders = {path.parent for path in FILES}
    crowded = {
        str(folder.relative_to(CSRC)): len(list(folder.iterdir()))
        for folder in folders
        if len(list(folder.iterdir())) > MOST_FILES
    }
    assert not crowded


def test_kernels_stand_in_the_namespace_of_their_room():
    wrong = []
    for path in FILES:
        room, *inner = path.relative_to(CSRC).parts
        if not inner or inner[0] != "cuda":
            continue
        expected = "bitgnn::cuda" if room == "core" else f"bitgnn::cuda::{room}"
        found = set(re.findall(r"^namespace (bitgnn[\w:]*) \{", path.read_text(), re.M))
        wrong += [f"{path.relative_to(CSRC)}: {name}" for name in found - {expected}]
    assert not wrong


def test_devices_are_asked_in_one_place():
    asking = [
        str(path.relative_to(CSRC))
        for path in FILES
        if re.search(r"capability\s*(==|!=|<|>)", path.read_text())
    ]
    assert asking == ["core/cuda/device.h"]


def test_kernels_are_chosen_in_route_files():
    one_kernel = CSRC / "whole_model" / "cuda"  # nothing to choose from
    choosing = {
        path.name
        for path in CSRC.glob("*/cuda/**/*.c*")
        if re.search(r"^(inline )?bool suits_\w+\(", path.read_text(), re.M)
        and one_kernel not in path.parents
    }
    assert choosing == {"route.cu"}


def test_headers_begin_with_what_they_are():
    assert not [path for path in FILES if not path.read_text().startswith("// ")]
