"""The kernels' house: flags and sources of the build, rooms, numbers that Python shares."""

import importlib
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
    ("wanted", "codes", "more"),
    [
        ("8.0", ["80,code=sm_80"], []),
        (
            "8.0+PTX;9.0a",
            ["80,code=sm_80", "80,code=compute_80", "90a,code=sm_90a"],
            ["-DBITGNN_HOPPER"],
        ),
        ("10.0 12.0", ["100,code=sm_100", "120,code=sm_120"], []),
    ],
)
def test_flags_of_targets(flags, wanted, codes, more):
    expected = [f"-gencode=arch=compute_{code}" for code in codes]
    assert flags.target_flags(wanted) == expected + more
    for wrong in ("7.5", "sm_90", "9"):
        with pytest.raises(SystemExit, match=f"from 8.0 on.*got '{wrong}'"):
            flags.target_flags(wrong)


def test_every_source_belongs_to_one_library_and_operators_to_both(flags):
    cpu, cuda = flags.cpu_sources(), flags.cuda_sources()
    assert len(cpu) == len(set(cpu))
    assert len(cuda) == len(set(cuda))
    sources = {path for path in FILES if path.suffix in (".cu", ".cpp")}
    assert {CSRC.parent / path for path in (*cpu, *cuda)} == sources
    operators = {path for path in sources if "BITGNN_OPERATORS(" in path.read_text()}
    assert {CSRC.parent / path for path in set(cpu) & set(cuda)} == operators


def test_core_includes_no_room():
    included = {
        (path.name, file)
        for path in (CSRC / "core").rglob("*.*")
        for file in re.findall(r'^#include "([^"]+)"', path.read_text(), re.M)
    }
    assert ("backend.h", "core/operands.h") in included
    assert not [pair for pair in included if not pair[1].startswith("core/")]


def test_the_command_prints_flags_and_sources(flags):
    run = [sys.executable, str(CSRC / "flags.py")]
    printed = subprocess.run([*run, "8.0"], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == flags.nvcc_command("8.0")
    printed = subprocess.run([*run, "--sources"], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == flags.cuda_sources()


def test_listings_are_short_and_files_begin_with_what_they_are():
    crowded = {path.parent for path in FILES if len(list(path.parent.iterdir())) > MOST_FILES}
    assert not crowded
    assert not [path for path in FILES if not path.read_text().startswith("// ")]


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


def test_devices_are_asked_in_one_place_and_kernels_chosen_in_route_files():
    asking = [path for path in FILES if re.search(r"capability\s*(==|!=|<|>)", path.read_text())]
    assert asking == [CSRC / "core" / "cuda" / "device.h"]
    one_kernel = CSRC / "whole_model" / "cuda"  # nothing to choose from
    choosing = {
        path.name
        for path in CSRC.glob("*/cuda/**/*.c*")
        if re.search(r"^(inline )?bool suits_\w+\(", path.read_text(), re.M)
        and one_kernel not in path.parents
    }
    assert choosing == {"route.cu"}


# Name in Python, below bitgnn; file below csrc; name in C++.
SAME = """
bits.tensor.WORD_BITS core/common.h kWordBits
bits.int8.MOST_FEATURES int8/arguments.h kMostInt8Features
bits.int8.MOST int8/arguments.h kLargestCode
bits.int8.ROW_BYTES int8/arguments.h kInt8RowBytes
bits.layouts.TILE core/common.h kTileDim
bits.layouts.LANES core/common.h kSliceLanes
bits.layouts.STEP core/common.h kSliceStepEdges
bits.layouts.ORDER_STEP pairs/arguments.h kOrderStep
ops.linear.MOST_FEATURES bmm/arguments.h kMostLinearFeatures
ops.conv_shape.MOST_WEIGHTS first_layers/operators.cpp kMostFixedWeights
ops.reference.pairs.MAX_NARROW_SIZE bspmm/narrow_sums.h kMostShortFeatures
ops.linear.MOST_LAYERS whole_model/linear_chain.h kMostChainLayers
ops.linear.MOST_CHAIN_FEATURES whole_model/linear_chain.h kMostChainFeatures
ops.reference.bmm.LAYER_NUMBERS whole_model/linear_chain.h kChainLayerNumbers
ops.reference.bmm.STEP_WORDS whole_model/linear_chain.h kChainStepWords
ops.reference.bmm.HIDDEN_TABLE whole_model/linear_chain.h kHiddenTable
ops.reference.bmm.LAST_TABLE whole_model/linear_chain.h kLastTable
ops.reference.sampling.MOST_DRAWS sampling/cpu/operators.cpp kMostDraws
inference.rewrites.MOST_NARROW_COLUMNS pairs/cuda/narrow/route.cu kMostColumns
"""


def number(path, name):
    """Value of a constant: an integer, or one shifted to the left."""
    found = re.findall(rf"constexpr [\w: ]+ {name} = (-?\d+)(?: << (\d+))?;", path.read_text())
    assert len(found) == 1, f"{path}: {name} is defined {len(found)} times as a plain number"
    value, shift = found[0]
    return int(value) << int(shift or 0)


@pytest.mark.parametrize("line", SAME.split("\n")[1:-1])
def test_numbers_are_the_same(line):
    mine, file, theirs = line.split()
    module, _, name = mine.rpartition(".")
    found = getattr(importlib.import_module(f"bitgnn.{module}"), name)
    assert found == number(CSRC / file, theirs)
