"""Frozen models on dense features, from floats or packed 8-bit rows, decide as the trained ones."""

from functools import partial

import pytest
import torch
from dense_features import CLASSES, KINDS, NODES, Network, dense_features, dense_graph, network
from dense_features import trained as train
from torch import nn

import bitgnn
from bitgnn import BitTensor
from bitgnn.bits import Int8Tensor
from bitgnn.inference import call_by_call, load, memory_report, save
from bitgnn.inference.stream import predict
from bitgnn.measure.memory import stored_bytes


def scores(model, *inputs):
    with torch.no_grad():
        return model(*inputs)


def kinds_of(frozen):
    return [step.kind for step in frozen.program.calls]


@pytest.mark.parametrize("norm", [False, True], ids=["", "norms"])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("precision", ["bin", "full"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_score_is_the_trained_one(kind, precision, num_layers, norm, device, tmp_path):
    model, x, edges = network(kind, precision, num_layers=num_layers, norm=norm)
    model, x, edges = model.to(device), x.to(device), edges.to(device)
    expected = scores(model, x, edges)
    frozen = bitgnn.freeze(model, check=False)
    packed, graph = frozen.pack_features(x), frozen.prepare_graph(edges, NODES)
    assert type(packed) is Int8Tensor
    copy = load(save(frozen, tmp_path / "model")).to(device)
    assert copy.report == frozen.report
    for form in (x, packed):
        for _ in range(3):  # recorded from the second call on
            assert torch.equal(frozen(form, graph), expected)
        assert torch.equal(frozen(form, edges), expected)
        assert torch.equal(copy(form, edges), expected)
    assert torch.equal(copy.pack_features(x).codes, packed.codes)


@pytest.mark.parametrize("size", [1, 15, 16, 17, 130])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_every_width(kind, size, device):
    model, x, edges = network(kind, "bin", size=size)
    model, x, edges = model.to(device), x.to(device), edges.to(device)
    frozen = bitgnn.freeze(model, check=False)
    packed = frozen.pack_features(x)
    assert packed.shape == (NODES, size)
    assert packed.codes.shape == (NODES, -(-size // 16) * 16)
    for form in (x, packed):
        assert torch.equal(frozen(form, edges), scores(model, x, edges))


def test_programs_of_the_forms():
    """One packing for all products of a value, and bits wherever a sign alone is read."""
    programs = {
        (kind, precision): kinds_of(bitgnn.freeze(network(kind, precision)[0], check=False))
        for kind in ("gcn", "sage")
        for precision in ("bin", "full")
    }
    rest = ["bmm_bbf", "bspmm_fbf"]
    assert programs == {
        ("gcn", "bin"): ["pack_int8", "bmm_iib", "bspmm_bbb", *rest],
        ("gcn", "full"): ["pack_int8", "bmm_iif", "bspmm_fbb", *rest],
        ("sage", "bin"): ["pack_int8", "bmm_iib", "bspmm_bbf", "bmm_add_iib", *rest, "bmm_add"],
        ("sage", "full"): ["pack_int8", "bmm_iif", "bspmm_fbf", "bmm_add_iib", *rest, "bmm_add"],
    }


@pytest.mark.parametrize(("kind", "calls"), [("gcn", 2), ("sage", 1)])
def test_floats_are_read_once(kind, calls):
    """One call quantises and multiplies for a single reader; several share the packed rows."""
    model, x, _ = network(kind, "full")
    frozen = bitgnn.freeze(model, check=False)
    for form, together in ((x, calls), (frozen.pack_features(x), 1)):
        first, *_ = call_by_call.groups(frozen, form)
        assert len(first) == together


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_floats_are_their_float32_values(dtype):
    model, x, edges = network("sage", "bin")
    frozen, narrow = bitgnn.freeze(model, check=False), x.to(dtype)
    expected = frozen(narrow.float(), edges)
    for form in (narrow, frozen.pack_features(narrow)):
        found = frozen(form, edges)
        assert torch.equal(found, expected.to(found.dtype))
    assert frozen(narrow, edges).dtype == dtype


def test_other_numbers_become_floats():
    model, x, edges = network("gcn", "bin")
    frozen, whole = bitgnn.freeze(model, check=False), x.round()
    expected = frozen(whole, edges)
    for form in (whole.double(), whole.int(), whole.numpy(), whole.to_sparse()):
        assert torch.equal(torch.as_tensor(frozen(form, edges)).float(), expected)
    assert torch.equal(frozen(torch.stack([x, whole]), edges)[1], expected)


def test_broken_values_are_numbers_in_rows():
    """NaN is the centre of its column, infinity its last code; those who ask are told."""
    model, x, edges = network("gcn", "bin")
    frozen = bitgnn.freeze(model, check=False)
    broken = x.clone()
    broken[3, 5], broken[4, 6], broken[5, 7] = torch.nan, torch.inf, -torch.inf
    codes = frozen.pack_features(broken).codes
    assert (codes[3, 5], codes[4, 6], codes[5, 7]) == (0, 127, -127)
    assert torch.equal(codes[6:], frozen.pack_features(x).codes[6:])
    assert bool(torch.isfinite(frozen(broken, edges)).all())
    assert torch.equal(frozen(broken, edges), frozen(frozen.pack_features(broken), edges))
    with pytest.raises(ValueError, match="x must be finite, got NaN or infinity"):
        frozen.pack_features(broken, check_finite=True)


def test_rows_of_other_scales_widths_and_kinds_are_refused():
    model, x, edges = network("gcn", "bin")
    frozen = bitgnn.freeze(model, check=False)
    graph = frozen.prepare_graph(edges, NODES)
    packed = frozen.pack_features(x)
    for _ in range(2):  # recorded
        frozen(packed, graph)
    other = bitgnn.freeze(train(Network("gcn", "bin", 37), x.flip(1), edges), check=False)
    narrow = bitgnn.freeze(network("gcn", "bin", size=36)[0], check=False)
    for rows, message in (
        (other.pack_features(x), "x must be packed by the scales .* of this model"),
        (Int8Tensor.from_float(x, x.mean(0), x.std(0)), "x must be packed by the scales"),
        (narrow.pack_features(x[:, :36]), "x must have 37 features, got 36"),
        (BitTensor.from_float(x), "x must be floats or an Int8Tensor .* got a BitTensor"),
        (x[:, :36], "x must have 37 features, got 36"),
        (packed[:5], "adjacency has 90 nodes, x has 5"),
    ):
        for call in (frozen, partial(bitgnn.capture, frozen)):
            with pytest.raises(ValueError, match=message):
                call(rows, graph)
    pattern = network_on_patterns(edges)
    with pytest.raises(ValueError, match="got an Int8Tensor; the features of this"):
        pattern(packed, edges)
    with pytest.raises(TypeError, match="x must be floats, got packed features"):
        frozen.pack_features(packed)
    with pytest.raises(ValueError, match=r"layout must be one of \('auto', 'dense'\)"):
        frozen.pack_features(x, layout="sparse")


def network_on_patterns(edges):
    """A frozen network whose features are sparse 0/1 values."""
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(NODES, 37, generator=generator) < 0.1).float()
    frozen = bitgnn.freeze(train(Network("gcn", "bin", 37), x, edges), check=False)
    assert isinstance(frozen.pack_features(x, layout="dense"), BitTensor)
    return frozen


def test_a_model_for_packed_rows_refuses_floats():
    model, x, edges = network("sage", "full")
    frozen = bitgnn.freeze(model, check=False, features="packed")
    with pytest.raises(ValueError, match="x must be the result of pack_features, got floats"):
        frozen(x, edges)
    rows = frozen.pack_features(x)
    assert torch.equal(frozen(rows, edges), scores(model, x, edges))
    assert torch.equal(frozen(rows.as_features(), edges), scores(model, x, edges))


def test_rows_are_cut_for_batches():
    model, x, edges = network("gcn", "bin")
    frozen = bitgnn.freeze(model, check=False)
    nodes = torch.arange(40, 90)
    inside = edges[:, (edges >= 40).all(0)] - 40
    batch = bitgnn_batch(nodes, inside)
    found = predict(frozen, [batch], frozen.pack_features(x))
    assert torch.equal(found.result, frozen(x[40:], inside))


def bitgnn_batch(nodes, edges):
    from torch_geometric.data import Data

    return Data(n_id=nodes, edge_index=edges, num_nodes=len(nodes))


class Beside(nn.Module):
    """Two layers that read the same features, and a norm that they may stand behind."""

    def __init__(self, size, normed):
        super().__init__()
        self.norm = nn.BatchNorm1d(size) if normed else nn.Identity()
        self.one = KINDS["gcn"](size, CLASSES, precision="full")
        self.two = KINDS["graph"](size, CLASSES, precision="full")

    def forward(self, x, edge_index):
        x = self.norm(x)
        return self.one(x, edge_index) + self.two(x, edge_index)


@pytest.mark.parametrize("normed", [False, True])
def test_layers_with_the_same_scales_share_the_rows(normed):
    x, edges = dense_features(), dense_graph()
    model = train(Beside(37, normed), x, edges)
    frozen = bitgnn.freeze(model, check=False)
    kinds = kinds_of(frozen)
    assert kinds.count("pack_int8") == 1
    assert frozen.program.entry == kinds.index("pack_int8") + 1
    assert kinds[0] == ("batch_norm" if normed else "pack_int8")
    for form in (x, frozen.pack_features(x)):
        assert torch.equal(frozen(form, edges), scores(model, x, edges))


def test_layers_with_other_scales_need_floats():
    x, edges = dense_features(), dense_graph()
    model = train(Beside(37, False), x, edges)
    for name, buffer in model.two.input_bits.named_buffers():
        if name == "mean":
            buffer.add_(1.0)
    frozen = bitgnn.freeze(model, check=False)
    assert kinds_of(frozen).count("pack_int8") == 2
    assert torch.equal(frozen(x, edges), scores(model, x, edges))
    with pytest.raises(ValueError, match="this model takes floats"):
        frozen.pack_features(x)
    with pytest.raises(ValueError, match="x must be floats"):
        frozen(Int8Tensor.from_float(x, x.mean(0), x.std(0)), edges)


class Forked(nn.Module):
    """A first layer whose result is read by sign, by another sign and in floats."""

    def __init__(self, kind):
        super().__init__()
        self.first = KINDS[kind](37, 20, precision="bin")
        self.norm = nn.BatchNorm1d(20)
        self.one = KINDS[kind](20, CLASSES, precision="bin")
        self.two = KINDS[kind](20, CLASSES, precision="bin")
        self.last = nn.Linear(20, CLASSES)

    def forward(self, x, edge_index):
        h = self.first(x, edge_index)
        out = self.one(h.relu(), edge_index) + self.two(self.norm(h).relu() - 0.5, edge_index)
        return out + self.last(h)


@pytest.mark.parametrize("kind", KINDS)
def test_several_readers_of_a_first_layer(kind):
    x, edges = dense_features(), dense_graph()
    model = train(Forked(kind), x, edges)
    frozen = bitgnn.freeze(model, check=False, fold=False)
    expected = scores(model, x, edges)
    for form in (x, frozen.pack_features(x)):
        torch.testing.assert_close(frozen(form, edges), expected, atol=1e-5, rtol=1e-5)


def test_written_scales_are_noticed():
    model, x, edges = network("gcn", "bin")
    frozen = bitgnn.freeze(model, check=False)
    packed = frozen.pack_features(x)
    before = frozen(packed, edges)
    centre = frozen.get_buffer(frozen.program.calls[0].tensors["centre"])
    kept = packed.centre.clone()
    centre.add_(x.std(0))
    assert torch.equal(packed.centre, kept)
    with pytest.raises(ValueError, match="x must be packed by the scales"):
        frozen(packed, edges)
    again = frozen.pack_features(x)
    assert not torch.equal(again.codes, packed.codes)
    assert not torch.equal(frozen(again, edges), before)
    assert torch.equal(frozen(again, edges), frozen(x, edges))


@pytest.mark.parametrize("form", ["floats", "rows"])
def test_exported_and_compiled_programs_run(form):
    model, x, edges = network("sage", "bin")
    frozen = bitgnn.freeze(model, check=False)
    graph = frozen.prepare_graph(edges, NODES)
    given = x if form == "floats" else frozen.pack_features(x)
    expected = scores(model, x, edges)
    program = torch.export.export(frozen, (given, graph))
    assert torch.equal(program.module()(given, graph), expected)
    compiled = torch.compile(frozen, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(given, graph), expected)


def test_the_summary_counts_bits_and_operations():
    model, x, edges = network("gcn", "bin")
    frozen = bitgnn.freeze(model, check=False)
    assert frozen.letters[0] == "FIB+BBF"
    shown = bitgnn.summary(frozen)
    first, last = shown.layers
    assert (first.letters, first.activation_bits, first.weight_bits) == ("FIB+BBF", 8, 8)
    assert (first.aggregation_bits, first.output_bits) == (1, 1)
    assert (first.one_bit_share, last.one_bit_share) == (0.0, 1.0)
    dense, bits = 37 * 35, 35 * CLASSES
    assert shown.one_bit_share == pytest.approx(bits / (dense + bits))
    assert first.float_bytes == 4 * (dense + 35)
    timed = bitgnn.summary(frozen, (frozen.pack_features(x), edges))
    assert [layer.name for layer in timed.layers] == [layer.name for layer in shown.layers]
    assert 0 < timed.one_bit_share < 1


def test_memory_of_packed_rows():
    model, x, edges = network("gcn", "bin")
    frozen = bitgnn.freeze(model, check=False)
    floats, packed = (
        memory_report(frozen, (x, edges), features=form) for form in ("floats", "packed")
    )
    assert (floats.features, packed.features) == ("floats", "8-bit rows")
    assert packed.measured.features == stored_bytes(frozen.pack_features(x))
    assert packed.measured.features < floats.measured.features / 2
    scales = 37 * 4
    for report in (floats, packed):
        # Centres and inverse steps once more, to notice writes; centres and steps of packed rows.
        assert report.measured.weights == frozen.nbytes + 4 * scales
