"""Frozen models on sparse features: the bits of the dense ones, from the entries alone."""

import pytest
import torch
from chains import CLASSES, FEATURES, Chain, N
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.nn import GCN

from bitgnn import BitAdjacency, BitTensor, binarize
from bitgnn.convert import freeze
from bitgnn.inference import call_by_call, capture, memory_report

WORDS = 400
BITS, SCALED = ["BBB+BBB", "BBF+FBF"], ["FBF+FBF", "FBF+FBF"]


class Operators(TorchDispatchMode):
    """Names of the operators inside."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.name().partition(".")[0])
        return func(*args, **(kwargs or {}))


def made(letters=BITS, features=FEATURES):
    torch.manual_seed(0)
    return freeze(Chain("gcn", letters).eval())


@pytest.fixture
def frozen():
    return made()


@pytest.fixture
def held(x):
    """Features of which one row is empty."""
    x = x * (x.abs() > 0.7)
    x[3] = 0
    return x


def forms(x):
    """A matrix as sparse tensors that hold it in other ways."""
    csr = x.to_sparse_csr()
    rowptr, columns, values = csr.crow_indices(), csr.col_indices(), csr.values()

    def of(order, columns=columns, values=values):
        return torch.sparse_csr_tensor(rowptr, columns[order], values[order], x.shape)

    row = torch.arange(len(x)).repeat_interleave(rowptr.diff())
    everything = slice(None)
    yield "sorted", csr
    yield "other orders", of(torch.argsort(row * x.size(1) - columns))
    yield "int32", torch.sparse_csr_tensor(rowptr.int(), columns.int(), values, x.shape)
    twice = torch.cat([csr.to_sparse_coo().indices()] * 3, 1)
    parts = torch.cat([values * 2, values * 0.5, values * -1.5])
    whole = torch.sparse_coo_tensor(twice, parts, x.shape)
    yield "COO with entries that are added up", whole
    order = torch.argsort(twice[0], stable=True)
    yield (
        "CSR with entries that are added up",
        torch.sparse_csr_tensor(rowptr * 3, twice[1][order], parts[order], x.shape),
    )
    zeros = x.clone().masked_fill_(x == 0, 1.0).to_sparse_csr()
    zeros.values().copy_(x[zeros.to_dense() != 0])
    yield "zeros that are entries", zeros
    yield "COO", x.to_sparse()
    yield "CSC", x.to_sparse_csc()
    yield "half", of(everything, values=values.half())
    yield "float64", of(everything, values=values.double())
    yield "integers", of(everything, values=values.long())


@pytest.mark.parametrize("letters", [BITS, SCALED], ids=["bits", "scaled"])
def test_results_are_those_of_the_dense_features(letters, held, edges):
    frozen = made(letters)
    graph = frozen.prepare_graph(edges, N)
    for name, sparse in forms(held):
        expected = frozen(sparse.to_dense(), graph)
        for _ in range(3):  # the third is recorded
            assert torch.equal(frozen(sparse, graph), expected), name
        assert torch.equal(frozen(sparse, edges), expected), name
        if sparse.is_floating_point():
            packed = frozen.pack_features(sparse, check_finite=True, layout="dense")
            assert packed.equal(frozen.pack_features(sparse.to_dense(), layout="dense")), name


def test_only_entries_are_read(frozen, held, edges):
    graph = frozen.prepare_graph(edges, N)
    frozen(held.to_sparse(), graph)  # which prepares the weights for patterns
    for sparse in (held.to_sparse_csr(), held.to_sparse()):
        for call in (lambda x: frozen(x, graph), frozen.pack_features):
            with Operators() as seen:
                call(sparse)
            assert {"bitgnn::pack_csr", "bitgnn::bspmm_entries"} & set(seen.names)
            assert not {"bitgnn::pack", "aten::_to_dense", "aten::to_dense"} & set(seen.names)


def looked_up(flips=True):
    """A default network, whose features are the pattern of those present; gains of both signs."""
    torch.manual_seed(0)
    present = (torch.rand(N, WORDS) < 0.05).float()
    edges = torch.randint(N, (2, 4 * N))
    model = binarize(GCN(WORDS, 70, num_layers=2, out_channels=CLASSES), "bin")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(present, edges).square().sum().backward()
        optimizer.step()
    if flips:
        for name, parameter in model.named_parameters():
            if name == "convs.0.hidden_norm.weight":
                parameter.data[::3] *= -1
    return freeze(model.eval(), check=False), present, edges


@pytest.mark.parametrize("flips", [False, True])
def test_products_of_entries_alone(flips):
    frozen, present, edges = looked_up(flips)
    graph = frozen.prepare_graph(edges, N)
    first = frozen.program.calls[frozen.program.entry]
    assert ("flip" in first.tensors) == flips
    assert "threshold" in first.tensors
    with Operators() as seen:
        frozen(present.to_sparse_csr(), graph)
    assert "bitgnn::bspmm_entries" in seen.names
    assert not {"bitgnn::pack_csr", "bitgnn::bmm_bbb"} & set(seen.names)
    for x in (present, present * torch.randn(N, WORDS), present * 0, present[:1], present[:0]):
        own = graph if len(x) == N else frozen.prepare_graph(edges[:, :0], len(x))
        for name, sparse in forms(x) if len(x) == N and x.any() else [("CSR", x.to_sparse_csr())]:
            expected = frozen(sparse.to_dense(), own)
            for _ in range(3):  # the third is recorded
                assert torch.equal(frozen(sparse, own), expected), name
    broken = present.clone()
    broken[::7] *= torch.nan
    assert torch.equal(frozen(broken.to_sparse_csr(), graph), frozen(broken, graph))


@pytest.mark.parametrize("flips", [False, True])
def test_patterns_with_thresholds(flips):
    frozen, present, edges = looked_up(flips)
    graph = frozen.prepare_graph(edges, N)
    expected = frozen(present, graph)
    pattern = frozen.pack_features(present, layout="sparse")
    assert isinstance(pattern, BitAdjacency)
    for _ in range(3):
        assert torch.equal(frozen(pattern, graph), expected)
        assert torch.equal(frozen(frozen.pack_features(present, layout="dense"), graph), expected)


def test_products_follow_writes_to_weights_and_thresholds():
    frozen, present, edges = looked_up()
    graph, sparse = frozen.prepare_graph(edges, N), (present * 0.5).to_sparse_csr()
    for _ in range(3):
        frozen(sparse, graph)
    first = frozen.program.calls[frozen.program.entry]
    packing = frozen.program.calls[frozen.program.entry - 1]
    for name in (first.tensors["w"], first.tensors["threshold"], packing.tensors["threshold"]):
        buffer = frozen.get_buffer(name)
        before = frozen(sparse, graph)
        buffer.copy_(buffer.flip(0) + 1)
        assert torch.equal(frozen(sparse, graph), frozen(present * 0.5, graph))
        assert not torch.equal(frozen(sparse, graph), before)


def test_captured_calls_take_them(frozen, held, edges):
    graph, sparse = frozen.prepare_graph(edges, N), held.to_sparse_csr()
    expected = frozen(held, graph)
    for _ in range(3):
        frozen(held, graph)  # a recording for floats of this shape is no recording for these
    run = capture(frozen, sparse, graph)
    assert run.why == "its features are converted anew by every call"
    for given in (None, sparse, held.to_sparse_csr(), None):
        assert torch.equal(run(given), expected)
    sparse.values().neg_()
    assert torch.equal(run(), frozen(-held, graph))


def test_models_for_packed_features_go_on_refusing_others(held, edges):
    frozen = made()
    frozen.set_features("packed")
    with pytest.raises(ValueError, match="x must be the result of pack_features, got floats"):
        frozen(held.to_sparse_csr(), edges)
    assert isinstance(frozen.pack_features(held.to_sparse_csr(), layout="dense"), BitTensor)


def test_rooms_for_dense_features_alone_say_so(frozen, held, edges):
    graph, sparse = frozen.prepare_graph(edges, N), held.to_sparse_csr()
    message = r"x must be dense or the result of pack_features, got a tensor of layout .*csr"
    for call in (
        lambda: memory_report(frozen, (sparse, graph)),
        lambda: call_by_call.groups(frozen, sparse),
        lambda: call_by_call.steps(frozen, sparse, graph),
        lambda: call_by_call.repeatable_calls(frozen, sparse, graph),
    ):
        with pytest.raises(TypeError, match=message):
            call()


@pytest.mark.parametrize("column", [-1, FEATURES, 2**40])
def test_indices_that_torch_did_not_look_at(column, frozen, edges):
    ones = torch.ones(2)
    places = torch.tensor([[0, 1], [0, column]])
    rowptr = torch.cat([torch.tensor([0, 1]), torch.full((N - 1,), 2)])
    options = {"size": (N, FEATURES), "check_invariants": False}
    for sparse in (
        torch.sparse_coo_tensor(places, ones, **options),
        torch.sparse_csr_tensor(rowptr, places[1], ones, **options),
    ):
        with pytest.raises(ValueError, match="x must be a valid sparse matrix, got"):
            frozen(sparse, edges)
    outside = torch.sparse_coo_tensor(torch.tensor([[0, N], [0, 1]]), ones, **options)
    with pytest.raises(ValueError, match=f"to {N} along dimension 0 of size {N}"):
        frozen(outside, edges)
    for wrong in ([5, *rowptr[1:].tolist()], [0, 2, 1, *rowptr[3:].tolist()], [0, *[9] * N]):
        sparse = torch.sparse_csr_tensor(torch.tensor(wrong), places[1] * 0, ones, **options)
        with pytest.raises(ValueError, match="x must be a valid sparse matrix, got"):
            frozen(sparse, edges)


def test_values_that_are_not_finite(frozen, held):
    held[5, 2] = torch.inf
    with pytest.raises(ValueError, match="x must be finite"):
        frozen.pack_features(held.to_sparse_csr(), check_finite=True)
