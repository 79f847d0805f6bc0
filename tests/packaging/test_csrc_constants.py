"""Numbers that Python and C++ both need are the same: layouts, limits and orders of sums."""

import importlib
import re
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parents[2] / "csrc"

# Name in Python, below bitgnn; file below csrc; name in C++.
SAME = """
bits.tensor.WORD_BITS core/common.h kWordBits
bits.layouts.TILE core/common.h kTileDim
bits.layouts.LANES core/common.h kSliceLanes
bits.layouts.STEP core/common.h kSliceStepEdges
bits.layouts.ORDER_STEP pairs/arguments.h kOrderStep
ops.linear.MOST_FEATURES bmm/arguments.h kMostLinearFeatures
ops._fixed_conv.MOST_WEIGHTS first_layers/operators.h kMostFixedWeights
ops.reference.pairs.MAX_NARROW_SIZE bspmm/narrow_sums.h kMostShortFeatures
ops.linear_chain.MOST_LAYERS whole_model/linear_chain.h kMostChainLayers
ops.linear_chain.MOST_FEATURES whole_model/linear_chain.h kMostChainFeatures
ops.reference.linear_chain.LAYER_NUMBERS whole_model/linear_chain.h kChainLayerNumbers
ops.reference.linear_chain.STEP_WORDS whole_model/linear_chain.h kChainStepWords
ops.reference.linear_chain.HIDDEN_TABLE whole_model/linear_chain.h kHiddenTable
ops.reference.linear_chain.LAST_TABLE whole_model/linear_chain.h kLastTable
ops.reference.sampling.MOST_DRAWS sampling/cpu/operators.cpp kMostDraws
inference.fusions.products.MOST_NARROW_COLUMNS pairs/cuda/narrow/route.cu kMostColumns
inference.fusions.products.MOST_OFTEN_FEATURES pairs/cuda/narrow/table.cuh kMostFeatures
inference.fusions.products.OFTEN pairs/cuda/narrow/route.cu kWideUses
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
