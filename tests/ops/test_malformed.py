"""Raw operators trust nothing: any argument may be wrong, and the process goes on."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bitgnn import BitAdjacency
from bitgnn._library import library_info
from bitgnn.ops import bspmm
from bitgnn.ops.reference import OPERATORS
from bitgnn.ops.reference.table import TABLE

SCRIPT = Path(__file__).resolve().parents[1] / "helpers" / "malformed_calls.py"
OPS = torch.ops.bitgnn
WORDS = torch.zeros((4, 2), dtype=torch.int32)


@pytest.mark.parametrize("odd", [0, 1])
def test_a_wrong_argument_is_an_error_or_has_a_result(odd, device, tmp_path):
    # In a process of its own: a crash would end this one.
    log = tmp_path / "call"
    seed = str(odd + (0 if device.type == "cpu" else 2))
    command = [sys.executable, "-W", "ignore", str(SCRIPT), str(log), device.type, seed]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{log.read_text()}\n{run.stdout[-2000:]}\n{run.stderr[-2000:]}"


def pattern(rowptr, indices):
    return torch.tensor(rowptr), torch.tensor(indices, dtype=torch.int32)


@pytest.mark.parametrize(
    ("rowptr", "indices", "message"),
    [
        ([0, 1, 2, 3, 4], [0, 1, 2, 4], r"indices must lie in \[0, 4\), got 4 at 3"),
        ([0, 1, 2, 3, 4], [0, -1, 2, 3], r"indices must lie in \[0, 4\), got -1 at 1"),
        ([0, 3, 2, 3, 4], [0, 1, 2, 3], "rowptr must begin with 0 and never descend"),
        ([0, 1, 2, 3, 3], [0, 1, 2, 3], "the last row pointer must be 4, got 3"),
    ],
)
def test_patterns_of_raw_calls_are_checked(rowptr, indices, message):
    with pytest.raises(ValueError, match=r"rowptr|indices"):
        OPERATORS["bspmm_bbf"](WORDS, 40, *pattern(rowptr, indices))
    if library_info().cpu_library is not None:
        with pytest.raises(RuntimeError, match=f"^bspmm_bbf: {message}"):
            OPS.bspmm_bbf(WORDS, 40, *pattern(rowptr, indices))


def test_a_sparse_matrix_of_torch_is_checked_once(monkeypatch):
    x = torch.ones(3, 4)
    for column in (3, -1, 2**31 + 1):
        rowptr, columns = torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1, column])
        matrix = torch.sparse_csr_tensor(
            rowptr, columns, torch.ones(3), (3, 3), check_invariants=False
        )
        with pytest.raises(ValueError, match=r"adjacency must have column indices in \[0, 3\)"):
            bspmm.fff(x, matrix)
    rowptr, columns = torch.tensor([0, 2, 1, 3]), torch.tensor([0, 1, 2])
    matrix = torch.sparse_csr_tensor(rowptr, columns, torch.ones(3), (3, 3), check_invariants=False)
    with pytest.raises(ValueError, match="row pointers that ascend"):
        bspmm.fff(x, matrix)
    good = torch.eye(3).to_sparse_csr()
    assert torch.equal(bspmm.fff(x, good), x)
    monkeypatch.setattr(torch, "aminmax", None)  # a second look would call it
    assert torch.equal(bspmm.fff(x, good), x)
    good.col_indices()[0] = 1
    with pytest.raises(TypeError, match="not callable"):
        bspmm.fff(x, good)


def test_sums_of_no_sources():
    adjacency = BitAdjacency.from_edge_index(torch.zeros(2, 0, dtype=torch.long), (3, 0))
    for dtype in (torch.int8, torch.int16):
        x = torch.zeros(0, 40, dtype=dtype)
        assert torch.equal(bspmm.fbf(x, adjacency, integer=True), torch.zeros(3, 40).int())


def test_results_that_no_memory_holds():
    empty = torch.empty(3, 0, dtype=torch.int32)
    many = torch.empty(1537228672809216683, 0, dtype=torch.int32)
    with pytest.raises(RuntimeError, match=r"a result of 2\^63 bytes or more|too large|overflow"):
        OPS.bmm_bbf(empty, many, 0)


def test_rows_without_features_take_no_time():
    assert OPS.unpack(torch.empty(2**62, 0, dtype=torch.int32), 0).shape == (2**62, 0)


def test_one_operand_without_memory():
    with pytest.raises(RuntimeError, match="bmm_bbf: tensors must be on one device"):
        OPS.bmm_bbf(WORDS, WORDS.to("meta"), 40)


@pytest.mark.parametrize("number", [2**31, 2**63 - 1])
def test_windows_whose_sizes_would_overflow(number):
    x = torch.zeros(1, 8, 8, 1, dtype=torch.int32)
    w = torch.zeros(4, 3, 3, 1, dtype=torch.int32)
    with pytest.raises((RuntimeError, ValueError), match="dilation must be at most 2147483647"):
        OPS.conv_bbf(x, w, 32, [1, 1], [0, 0, 0, 0], [number, number])


@pytest.mark.parametrize("name", TABLE)
def test_fakes_check_shapes(name, sampler):
    arguments = sampler(seed=3).arguments(name, 6, 70, 9, optional=True)
    operator = getattr(OPS, name)
    on_meta = {k: v.to("meta") if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
    operator(**on_meta)
    for parameter in TABLE[name].operands:
        value = on_meta.get(parameter)
        if isinstance(value, torch.Tensor):
            with pytest.raises(RuntimeError, match=f"^{name}: {parameter} must have"):
                operator(**{**on_meta, parameter: value.unsqueeze(0)})


DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int8,
    torch.int16, torch.int32, torch.int64, torch.bool, torch.complex64,
)  # fmt: skip


@pytest.mark.skipif(library_info().cpu_library is None, reason="no compiled library is loaded")
@pytest.mark.parametrize("name", TABLE)
def test_fakes_take_the_dtypes_that_kernels_take(name, sampler):
    arguments = sampler(seed=3).arguments(name, 6, 70, 9, optional=True)
    for parameter, value in arguments.items():
        if not isinstance(value, torch.Tensor):
            continue
        refused = {True: set(), False: set()}
        for dtype in DTYPES:
            other = {**arguments, parameter: value.to(dtype)}
            for on_meta, found in refused.items():
                moved = {k: v.to("meta") for k, v in other.items() if isinstance(v, torch.Tensor)}
                if is_dtype_error(name, parameter, other | moved if on_meta else other):
                    found.add(dtype)
        # Kernels do not look at what does not act, such as a scale with scale=False.
        assert refused[False] in (refused[True], set()), parameter
        assert value.dtype not in refused[True], parameter
        assert torch.complex64 in refused[True], parameter


def is_dtype_error(name, parameter, arguments):
    """Whether a call is refused for the dtype of an operand; kernels call all counts so."""
    names = f"{parameter}|counts" if parameter.endswith("_counts") else parameter
    try:
        getattr(OPS, name)(**arguments)
    except RuntimeError as error:
        return bool(re.match(rf"{name}: ({names}) must be .*, got \S+$", str(error)))
    return False


def test_fakes_name_the_size_that_does_not_fit():
    x, w = (torch.empty(3, words, dtype=torch.int32, device="meta") for words in (2, 7))
    with pytest.raises(RuntimeError, match="bmm_bbf: w must have size 2 along dimension 1, got 7"):
        OPS.bmm_bbf(x, w, 40)
    with pytest.raises(RuntimeError, match="add_bbb: b must have size 2 along dimension 1, got 7"):
        OPS.add_bbb(x, w, 40)


@pytest.mark.skipif(library_info().cpu_library is None, reason="no compiled library is loaded")
@pytest.mark.parametrize("self_loops", [False, True])
def test_patterns_of_edges_have_a_fake(self_loops):
    sources, destinations = torch.tensor([0, 1, 2]), torch.tensor([1, 1, 0])
    real = OPS.csr_from_edges(sources, destinations, 3, 3, self_loops)
    fake = OPS.csr_from_edges(sources.to("meta"), destinations.to("meta"), 3, 3, self_loops)
    assert [(t.shape, t.dtype) for t in fake] == [(t.shape, t.dtype) for t in real]


def test_a_chain_without_layers_has_no_fake():
    words = torch.empty(3, 2, dtype=torch.int32, device="meta")
    with pytest.raises(RuntimeError, match="linear_chain: layers must hold 4 numbers"):
        OPS.linear_chain(words, words[0], [])


@pytest.mark.cuda
def test_patterns_of_raw_calls_are_checked_on_a_gpu():
    words = WORDS.cuda()
    good = [t.cuda() for t in pattern([0, 1, 2, 3, 4], [0, 1, 2, 3])]
    bad = [t.cuda() for t in pattern([0, 1, 2, 3, 4], [0, 1, 2, 4])]
    with pytest.raises(RuntimeError, match=r"^bspmm_bbf: indices must lie in \[0, 4\), got 4 at 3"):
        OPS.bspmm_bbf(words, 40, *bad)
    expected = OPS.bspmm_bbf(words, 40, *good)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = OPS.bspmm_bbf(words, 40, *good, trusted=True)
    graph.replay()
    assert torch.equal(captured, expected)
