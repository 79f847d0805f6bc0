"""8-bit rows in files, in PyG's data, batches and loaders, and files that are refused."""

import copy
import pickle

import pytest
import torch
from safetensors.torch import load_file
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader, RandomNodeLoader
from torch_geometric.loader.utils import filter_data

import bitgnn
from bitgnn import BitTensor, FileError
from bitgnn.bits import Int8Features, Int8Tensor
from bitgnn.data import NeighborLoader, PackedFeatureStore
from bitgnn.data.feature_file import HEADER_BYTES

NODES, EDGES = 40, 200
X = {"group_name": None, "attr_name": "x"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x"


def packed(rows=NODES, size=33, centre=0.5):
    step = torch.linspace(0, 0.1, size)
    return Int8Tensor.from_float(torch.randn(rows, size), torch.full((size,), centre), step)


def graph(size=33):
    edge_index = torch.randint(NODES, (2, EDGES))
    rows = packed(size=size)
    rest = {"edge_index": edge_index, "y": torch.arange(NODES)}
    return Data(x=rows, **rest), Data(x=rows.to_float(), **rest)


def get(store, index=None):
    return store.get_tensor(**X, index=index)


def check(data, floats):
    assert type(data.x) is Int8Features
    assert torch.equal(data.x.to_float(), floats.x)
    assert torch.equal(data.y, floats.y)
    assert torch.equal(data.edge_index, floats.edge_index)
    assert (data.num_nodes, data.num_node_features) == (floats.num_nodes, floats.num_node_features)
    assert repr(data) == repr(floats)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 33])
def test_rows_of_a_file_are_those_written(path, size):
    whole = packed(size=size)
    PackedFeatureStore.write(path, iter([whole[:11], whole[:0], whole[11:].as_features()]))
    store = PackedFeatureStore(path, fingerprint=whole.fingerprint)
    store.verify()
    assert store.get_tensor_size(**X) == (NODES, size)
    for index in (slice(2, 5), torch.tensor([9, 0, 9]), torch.rand(NODES) < 0.5, [1], 3, None):
        found = get(store, index)
        assert type(found) is Int8Features
        assert found.fingerprint == whole.fingerprint
        assert found.equal(whole if index is None else whole[index])
    assert get(pickle.loads(pickle.dumps(store))).equal(whole)
    held = load_file(path)
    assert {name: part.dtype for name, part in held.items()} == {
        "codes": torch.int8,
        "centre": torch.float32,
        "step": torch.float32,
    }
    assert torch.equal(held["codes"], whole.codes)
    # One byte a value, beside padding, the header and the scales.
    assert path.stat().st_size == HEADER_BYTES + NODES * 16 * -(-size // 16) + 8 * size
    get(store).codes.fill_(3)  # stays in memory
    assert get(PackedFeatureStore(path)).equal(whole)


def test_no_rows_are_a_file(path):
    PackedFeatureStore.write(path, [packed(0)])
    assert get(PackedFeatureStore(path)).equal(packed(0))


def test_files_of_another_model_are_refused(path):
    ours, theirs = packed(3), packed(3, centre=0.25)
    PackedFeatureStore.write(path, [theirs])
    both = f"by scales {ours.fingerprint:016x}, holds .* by scales {theirs.fingerprint:016x}"
    with pytest.raises(FileError, match=f"{path}: must hold features of 8 bits packed {both}"):
        PackedFeatureStore(path, fingerprint=ours.fingerprint)
    with pytest.raises(FileError, match=both):
        PackedFeatureStore({"paper": path}, fingerprint={"paper": ours.fingerprint})
    PackedFeatureStore({"paper": path}, fingerprint={"paper": theirs.fingerprint})
    with pytest.raises(ValueError, match=r"fingerprint must be of \['paper'\] as .*, got 'author'"):
        PackedFeatureStore({"paper": path}, fingerprint={"author": ours.fingerprint})
    with pytest.raises(TypeError, match="fingerprint must be an int, got str"):
        PackedFeatureStore(path, fingerprint="12")
    PackedFeatureStore.write(path, [BitTensor.from_float(torch.randn(3, 33))])
    with pytest.raises(FileError, match="holds 33 features without scale"):
        PackedFeatureStore(path, fingerprint=ours.fingerprint)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: packed(centre=0.25), "by scales .* like the first, got 33 .* in block 1"),
        (lambda: packed(size=34), "have 33 features of 8 bits .* got 34 features of 8 bits"),
        (lambda: BitTensor.from_float(torch.randn(2, 33)), "got 33 features without scale in"),
        (lambda: torch.randn(2, 33), "got 33 features without scale in block 1"),
    ],
)
def test_blocks_of_one_file_have_one_kind(path, other, message):
    with pytest.raises(ValueError, match=f"write_features: blocks must .*{message}"):
        PackedFeatureStore.write(path, [packed(), other()])
    assert not list(path.parent.iterdir())


BYTES = HEADER_BYTES + NODES * 48 + 8 * 33
CENTRE = HEADER_BYTES + NODES * 48


def set_bytes(place, value):
    return lambda data: data[:place] + value + data[place + len(value) :]


def listed(data):
    """The same with the fingerprint in a list, in as many bytes."""
    for old, new in ((b'print": "', b'print": ["'), (b'"}, "codes"', b'"]}, "codes"')):
        data = data.replace(old, new).replace(b"  ", b" ", 1)
    return data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-1], f"has {BYTES - 1} bytes, {BYTES} were written"),
        (lambda data: data[:900], "is not a file of packed features"),
        (lambda data: data.replace(b"[40, 48]", b"[40, 32]"), "is not a file of packed features"),
        (lambda data: data.replace(b'"fingerprint"', b'"fingermarks"'), "is not a file of packed"),
        (lambda data: listed(data), r"is damaged, its scales are .* and not \['"),
        (set_bytes(CENTRE, b"\0\0\x80\x3e"), "is damaged, its scales are .* and not"),
        (set_bytes(CENTRE, b"\0\0\xc0\x7f"), "centre must be finite, got nan in column 0"),
        (set_bytes(BYTES - 4, b"\0\0\x80\xbf"), "step must be 0 or in .*, got -1.0 in column 32"),
    ],
)
def test_damaged_files_are_refused(path, change, message):
    PackedFeatureStore.write(path, [packed()])
    before = path.read_bytes()
    path.write_bytes(change(before))
    assert path.read_bytes() != before
    with pytest.raises(FileError, match=f"{path}: {message}"):
        PackedFeatureStore(path)


def test_damage_of_rows_is_found(path):
    whole = packed()
    PackedFeatureStore.write(path, [whole])
    before = path.read_bytes()
    for place, value, message in (
        (3 * 48 + 1, b"\x80", "codes must be within .*, got -128"),
        (3 * 48 + 40, b"\x01", "padding bytes must be 0, got 1 others"),
    ):
        path.write_bytes(set_bytes(HEADER_BYTES + place, value)(before))
        store = PackedFeatureStore(path)
        assert get(store, [0, 2, 4]).equal(whole[[0, 2, 4]])
        with pytest.raises(FileError, match=f"{path}: .*{message}"):
            get(store, [3])
    path.write_bytes(set_bytes(HEADER_BYTES, bytes([(before[HEADER_BYTES] + 1) & 1]))(before))
    with pytest.raises(FileError, match=f"{path}: is damaged, its checksum"):
        PackedFeatureStore(path).verify()
    store = PackedFeatureStore(path)
    path.write_bytes(before[:-4])
    with pytest.raises(FileError, match="was cut short while it was in use"):
        get(store, [0])


def test_data_is_cut_copied_and_joined():
    data, floats = graph()
    mask, index = torch.rand(NODES) < 0.5, torch.randperm(NODES)[:5]
    for change in (
        lambda data: data.clone(),
        lambda data: copy.deepcopy(data),
        lambda data: data.to("cpu", non_blocking=True).contiguous(),
        lambda data: data.subgraph(mask),
        lambda data: data.subgraph(index),
    ):
        check(change(data), change(floats))
    assert data.is_node_attr("x")
    assert data.clone().share_memory_().x.is_shared()
    batch = Batch.from_data_list([data, data.subgraph(mask)])
    check(batch, Batch.from_data_list([floats, floats.subgraph(mask)]))
    check(batch[1], floats.subgraph(mask))
    part = torch.tensor([3, 1, 7]), torch.tensor([0, 1]), torch.tensor([2, 2]), torch.tensor([4, 2])
    check(filter_data(data, *part), filter_data(floats, *part))
    other = Data(x=packed(centre=0.25), edge_index=data.edge_index)
    with pytest.raises(ValueError, match="must be packed by the scales"):
        Batch.from_data_list([data, other])


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("size", [1, 16, 33])
def test_loaders(workers, size):
    data, _ = graph(size)
    graphs = [data.subgraph(torch.arange(rows)) for rows in (3, 4, 5)]
    batches = list(DataLoader(graphs, batch_size=2, num_workers=workers))
    assert bitgnn.cat([batch.x for batch in batches]).equal(
        bitgnn.cat([graph.x for graph in graphs])
    )
    data.n_id = torch.arange(NODES)
    for batch in RandomNodeLoader(data, num_parts=3, num_workers=workers):
        assert type(batch.x) is Int8Features
        assert batch.x.equal(data.x[batch.n_id])


@pytest.mark.parametrize(("context", "in_worker"), [("fork", False), ("spawn", True)])
def test_sampled_neighbours(context, in_worker):
    data, _ = graph()
    options = {"num_workers": 1, "multiprocessing_context": context}
    loader = NeighborLoader(data, [3, 2], batch_size=20, filter_per_worker=in_worker, **options)
    for batch in loader:
        assert type(batch.x) is Int8Features
        assert batch.x.equal(data.x[batch.n_id])


@pytest.mark.parametrize("workers", [0, 1])
def test_sampled_rows_of_a_file(path, workers):
    data, _ = graph()
    PackedFeatureStore.write(path, [data.x], data.edge_index)
    store = PackedFeatureStore(path)
    store.put_edge_index(data.edge_index, edge_type=None, layout="coo", size=(NODES, NODES))
    seeds = torch.arange(NODES)
    for batch in NeighborLoader((store, store), [3, 2], seeds, batch_size=25, num_workers=workers):
        assert batch.x.equal(data.x[batch.n_id])
        assert batch.x.fingerprint == data.x.fingerprint


def test_bits_and_rows_in_one_graph(tmp_path):
    """A heterogeneous graph whose types of nodes have features of different kinds."""
    data = HeteroData()
    data["paper"].x = packed()
    data["author"].x = BitTensor.from_float(torch.randn(NODES, 5))
    kind = ("author", "writes", "paper")
    data[kind].edge_index = torch.randint(NODES, (2, EDGES))
    for name in ("paper", "author"):
        PackedFeatureStore.write(tmp_path / name, [data[name].x])
    store = PackedFeatureStore({name: tmp_path / name for name in ("paper", "author")})
    size = (NODES, NODES)
    store.put_edge_index(data[kind].edge_index, edge_type=kind, layout="coo", size=size)
    for source in (data, (store, store)):
        for batch in NeighborLoader(source, [3], ("paper", torch.arange(NODES)), batch_size=25):
            for name in ("paper", "author"):
                assert batch[name].x.equal(data[name].x[batch[name].n_id])
