"""Numbers that stand in Python and in C++ are the same: layouts, limits and rules of launches."""

import importlib
import re
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parents[2] / "csrc"

# Module and name in Python; file below csrc and name in C++.
SAME = [
    ("bitgnn.bits.tensor", "WORD_BITS", "core/common.h", "kWordBits"),
    ("bitgnn.bits.layouts", "TILE", "core/common.h", "kTileDim"),
    ("bitgnn.bits.sliced", "LANES", "core/common.h", "kSliceLanes"),
    ("bitgnn.bits.sliced", "STEP", "core/common.h", "kSliceStepEdges"),
    ("bitgnn.bits.row_order", "ORDER_STEP", "pairs/arguments.h", "kOrderStep"),
    ("bitgnn.bits.layouts", "MAX_BLOCK_SIZE", "pairs/narrow_operators.h", "kMostBlockColumns"),
    ("bitgnn.ops.linear", "MOST_FEATURES", "bmm/arguments.h", "kMostLinearFeatures"),
    ("bitgnn.ops._fixed_conv", "MOST_WEIGHTS", "first_layers/operators.h", "kMostFixedWeights"),
    ("bitgnn.ops.reference.narrow", "MAX_NARROW_SIZE", "bspmm/narrow_sums.h", "kMostShortFeatures"),
    ("bitgnn.ops.linear_chain", "MOST_LAYERS", "whole_model/linear_chain.h", "kMostChainLayers"),
    (
        "bitgnn.ops.linear_chain",
        "MOST_FEATURES",
        "whole_model/linear_chain.h",
        "kMostChainFeatures",
    ),
    (
        "bitgnn.ops.reference.linear_chain",
        "LAYER_NUMBERS",
        "whole_model/linear_chain.h",
        "kChainLayerNumbers",
    ),
    (
        "bitgnn.ops.reference.linear_chain",
        "STEP_WORDS",
        "whole_model/linear_chain.h",
        "kChainStepWords",
    ),
    (
        "bitgnn.ops.reference.linear_chain",
        "HIDDEN_TABLE",
        "whole_model/linear_chain.h",
        "kHiddenTable",
    ),
    ("bitgnn.ops.reference.linear_chain", "LAST_TABLE", "whole_model/linear_chain.h", "kLastTable"),
    ("bitgnn.inference.cooperative_tables", "NOTHING", "whole_model/cooperative.h", "kNoOffset"),
    (
        "bitgnn.inference.cooperative_tables",
        "PIECE_WORDS",
        "whole_model/cooperative.h",
        "kPieceWords",
    ),
    (
        "bitgnn.inference.cooperative_tables",
        "STATE_HEAD",
        "whole_model/cooperative.h",
        "kStateHead",
    ),
    (
        "bitgnn.inference.cooperative_tables",
        "MAX_BYTE_FEATURES",
        "bspmm/narrow_sums.h",
        "kMostByteFeatures",
    ),
    (
        "bitgnn.inference.cooperative_tables",
        "MOST_NARROW_COLUMNS",
        "pairs/cuda/narrow/route.cu",
        "kMostColumns",
    ),
    ("bitgnn.inference.cooperative_tables", "OFTEN", "pairs/cuda/narrow/route.cu", "kWideUses"),
    (
        "bitgnn.inference.narrow_workspace",
        "MOST_BYTE_FEATURES",
        "bspmm/narrow_sums.h",
        "kMostByteFeatures",
    ),
    (
        "bitgnn.inference.narrow_workspace",
        "MOST_SHORT_FEATURES",
        "bspmm/narrow_sums.h",
        "kMostShortFeatures",
    ),
    (
        "bitgnn.inference.narrow_workspace",
        "MOST_NARROW_COLUMNS",
        "pairs/cuda/narrow/route.cu",
        "kMostColumns",
    ),
    ("bitgnn.inference.narrow_workspace", "WIDE_USES", "pairs/cuda/narrow/route.cu", "kWideUses"),
    (
        "bitgnn.inference.narrow_workspace",
        "MOST_DIRECT_BYTES",
        "pairs/cuda/narrow/product.cu",
        "kMostWeightBytes",
    ),
    (
        "bitgnn.inference.narrow_workspace",
        "MOST_WIDE_WEIGHT_BYTES",
        "pairs/cuda/wide/sums.cu",
        "kMostWeightBytes",
    ),
    ("bitgnn.inference.workspace", "PAD_USES", "bspmm/cuda/bits.cuh", "kPadUses"),
    ("bitgnn.inference.workspace", "PAD_READS", "bspmm/cuda/bits.cuh", "kPadReads"),
    (
        "bitgnn.inference.workspace",
        "FRAGMENT_BYTES",
        "bspmm/cuda/floats/table.cuh",
        "kFragmentBytes",
    ),
    ("bitgnn.inference.workspace", "COPY_USES", "bspmm/cuda/floats/dense.cu", "kCopyUses"),
    ("bitgnn.inference.workspace", "REUSED_USES", "bspmm/cuda/floats/dense.cu", "kReusedUses"),
    (
        "bitgnn.inference.joint_workspace",
        "FEW_NEIGHBOURS",
        "pairs/cuda/joint/route.cu",
        "kFewNeighbours",
    ),
]


def number(path, name):
    """Value of a constant: an integer, or one shifted to the left."""
    found = re.findall(rf"constexpr [\w: ]+ {name} = (-?\d+)(?: << (\d+))?;", path.read_text())
    assert len(found) == 1, f"{path}: {name} is defined {len(found)} times as a plain number"
    value, shift = found[0]
    return int(value) << int(shift or 0)


@pytest.mark.parametrize(
    ("module", "mine", "file", "theirs"), SAME, ids=[f"{s[0]}.{s[1]}" for s in SAME]
)
def test_numbers_are_the_same(module, mine, file, theirs):
    assert getattr(importlib.import_module(module), mine) == number(CSRC / file, theirs)
