"""PackedFeatureStore: files written in a stream, rows read as PyG's loaders do, damage told."""

import os
import pickle
from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from torch.utils.data import DataLoader
from torch_geometric.data import FeatureStore, GraphStore
from torch_geometric.loader.utils import filter_custom_hetero_store, get_input_nodes

import bitgnn
from bitgnn import BitTensor, FileError
from bitgnn.bits import BitFeatures, Int8Features, Int8Tensor
from bitgnn.data import PackedFeatureStore
from bitgnn.data.feature_file import HEADER_BYTES

NODES = 11
EDGES = torch.tensor([[0, 3, 10], [1, 1, 2]])
X = {"group_name": None, "attr_name": "x"}
Y = {"group_name": None, "attr_name": "y"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x"


def packed(kind="bits", rows=NODES, size=40, centre=0.5):
    x = torch.randn(rows, size)
    if kind == "int8":
        return Int8Tensor.from_float(x, torch.full((size,), centre), torch.linspace(0, 0.1, size))
    return BitTensor.from_float(x, scale="mean" if kind == "scaled" else None)


def written(path, kind="bits", size=40, edge_index=None, rows=(4, 0, 7)):
    whole = packed(kind, sum(rows), size)
    blocks = [whole[part] for part in torch.arange(sum(rows)).split(rows)]
    PackedFeatureStore.write(path, iter(blocks), edge_index)
    return whole


def get(store, index=None):
    return store.get_tensor(**X, index=index)


def put_edges(store, edges, size, edge_type=None):
    store.put_edge_index(edges, edge_type=edge_type, layout="coo", size=size)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 31, 33, 64])
@pytest.mark.parametrize("kind", ["bits", "scaled", "int8"])
def test_rows_are_those_written(path, size, kind):
    whole = written(path, kind, size)
    options = {"fingerprint": whole.fingerprint} if kind == "int8" else {}
    store = PackedFeatureStore(path, **options)
    store.verify()
    assert isinstance(store, FeatureStore)
    assert isinstance(store, GraphStore)
    assert store.get_tensor_size(**X) == (NODES, size)
    for index in (slice(2, 5), torch.tensor([9, 0, 9]), torch.rand(NODES) < 0.5, [1], 3):
        found = get(store, index)
        assert type(found) is (Int8Features if kind == "int8" else BitFeatures)
        assert found.equal(whole[index])
        assert kind != "int8" or found.fingerprint == whole.fingerprint
    assert get(pickle.loads(pickle.dumps(store))).equal(whole)
    held = load_file(path)
    names = {"bits": ["words"], "scaled": ["scale", "words"], "int8": ["centre", "codes", "step"]}
    assert sorted(held) == names[kind]
    values = held["codes" if kind == "int8" else "words"]
    assert torch.equal(values, whole._packed)
    # The rows as they are, beside the header and the scales.
    assert path.stat().st_size == HEADER_BYTES + sum(part.nbytes for part in held.values())
    get(store)._packed.zero_()  # stays in memory
    assert get(PackedFeatureStore(path)).equal(whole)


@pytest.mark.parametrize("kind", ["bits", "int8"])
def test_no_rows_are_a_file(path, kind):
    whole = written(path, kind, rows=(0,))
    assert get(PackedFeatureStore(path)).equal(whole)


def test_floats_are_packed(path):
    x = torch.randn(5, 33)
    PackedFeatureStore.write(path, [x[:2], x[2:]])
    assert get(PackedFeatureStore(path)).equal(BitTensor.from_float(x))


def test_the_graph_and_other_tensors_are_put_in_and_taken_out(path):
    written(path, edge_index=EDGES)
    store = PackedFeatureStore(path)
    put_edges(store, EDGES, (NODES, NODES))
    store.put_tensor(torch.arange(NODES), **Y, index=None)
    assert store.get_tensor(**Y, index=torch.tensor([10, 2])).tolist() == [10, 2]
    assert len(store.get_all_tensor_attrs()) == 2
    assert torch.equal(store.get_edge_index(store.get_all_edge_attrs()[0]), EDGES)
    assert [len(part) for part in store.csc()[:2]] == [3, NODES + 1]
    assert store.remove_tensor(**Y, index=None)
    assert store.remove_edge_index(store.get_all_edge_attrs()[0])


def test_heterogeneous_graphs(tmp_path):
    papers, authors = written(tmp_path / "paper"), written(tmp_path / "author", rows=(3,))
    store = PackedFeatureStore({name: tmp_path / name for name in ("paper", "author")})
    key = ("author", "writes", "paper")
    edges, zero = torch.tensor([[0, 2], [10, 4]]), {key: torch.tensor([0])}
    put_edges(store, edges, (3, NODES), key)
    nodes = {"paper": torch.tensor([4]), "author": torch.tensor([2, 0])}
    batch = filter_custom_hetero_store(store, store, nodes, zero, zero, zero)
    assert batch["paper"].x.equal(papers[[4]])
    assert batch["author"].x.equal(authors[[2, 0]])
    assert len(get_input_nodes((store, store), "paper")[1]) == NODES
    with pytest.raises(FileError, match=r"author: holds features of 3 nodes, the graph has 4"):
        put_edges(store, edges, (4, NODES), key)


ROWS = HEADER_BYTES + NODES * 48
SIZE = ROWS + 8 * 40


def set_bytes(place, value):
    return lambda data: data[:place] + value + data[place + len(value) :]


def listed(data):
    """The same with the fingerprint in a list, in as many bytes."""
    for old, new in ((b'print": "', b'print": ["'), (b'"}, "codes"', b'"]}, "codes"')):
        data = data.replace(old, new).replace(b"  ", b" ", 1)
    return data


NO_FILE = "is not a file of packed features"
DAMAGED = "is damaged, its scales are .* and not"


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("bits", lambda data: data[:-1], "has 1111 bytes, 1112 were written"),
        ("bits", lambda data: data + b"0", "has 1113 bytes, 1112 were written"),
        ("bits", lambda data: data[:500], NO_FILE),
        ("bits", lambda data: b"", NO_FILE),
        ("bits", lambda data: b"\xff" * 8 + data[8:], NO_FILE),
        ("bits", lambda data: data.replace(b"[11, 2]", b"[12, 2]"), NO_FILE),
        ("bits", lambda data: data.replace(b'"1"', b'"2"'), f"{NO_FILE}, version 1"),
        ("bits", lambda data: data.replace(b"{", b"[", 1), "is not valid JSON"),
        ("int8", lambda data: data[:-1], f"has {SIZE - 1} bytes, {SIZE} were written"),
        ("int8", lambda data: data.replace(b"[11, 48]", b"[11, 32]"), NO_FILE),
        ("int8", lambda data: data.replace(b'"fingerprint"', b'"fingermarks"'), NO_FILE),
        ("int8", listed, rf"{DAMAGED} \['"),
        ("int8", set_bytes(ROWS, b"\0\0\x80\x3e"), DAMAGED),
        ("int8", set_bytes(ROWS, b"\0\0\xc0\x7f"), "centre must be finite, got nan in column 0"),
        ("int8", set_bytes(SIZE - 4, b"\0\0\x80\xbf"), "step must .*, got -1.0 in column 39"),
    ],
)
def test_damaged_files_are_refused(path, kind, change, message):
    written(path, kind)
    before = path.read_bytes()
    path.write_bytes(change(before))
    assert path.read_bytes() != before
    with pytest.raises(FileError, match=f"{path}: {message}"):
        PackedFeatureStore(path)


@pytest.mark.parametrize(
    ("kind", "place", "value", "message"),
    [
        ("bits", 3 * 8 + 7, b"\xff", "padding bits must be 0, got 1 rows"),
        ("int8", 3 * 48 + 1, b"\x80", "codes must be within .*, got -128"),
        ("int8", 3 * 48 + 40, b"\x01", "padding bytes must be 0, got 1 others"),
    ],
)
def test_damage_of_rows_is_found(path, kind, place, value, message):
    whole = written(path, kind)
    before = path.read_bytes()
    path.write_bytes(set_bytes(HEADER_BYTES + place, value)(before))
    store = PackedFeatureStore(path)
    assert get(store, [0, 2, 4]).equal(whole[[0, 2, 4]])
    with pytest.raises(FileError, match=f"{path}: .*{message}"):
        get(store, torch.tensor([0, 3]))
    path.write_bytes(set_bytes(HEADER_BYTES, bytes([before[HEADER_BYTES] ^ 1]))(before))
    with pytest.raises(FileError, match=f"{path}: is damaged, its checksum"):
        PackedFeatureStore(path).verify()
    store = PackedFeatureStore(path)
    path.write_bytes(before[:-4])
    with pytest.raises(FileError, match="was cut short while it was in use"):
        get(store, [0])


@pytest.mark.parametrize("kind", ["bits", "scaled", "int8"])
@pytest.mark.parametrize("index", [slice(0, 9000), 3])
def test_rows_outlive_a_file_that_is_cut_short(path, kind, index):
    whole = written(path, kind, rows=(9000,))
    store = PackedFeatureStore(path)
    rows = get(store, index)
    os.truncate(path, HEADER_BYTES)
    assert torch.equal(rows.to_float(), whole[index].to_float())
    with pytest.raises(FileError, match="cut short"):
        get(store, index)


def test_files_of_another_model_are_refused(path):
    ours, theirs = packed("int8"), packed("int8", centre=0.25)
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
    written(path)
    with pytest.raises(FileError, match="holds 40 features without scale"):
        PackedFeatureStore(path, fingerprint=ours.fingerprint)


def test_another_graph_is_refused(path):
    written(path, edge_index=EDGES)
    store = PackedFeatureStore(path)
    for edges, size, message in (
        (EDGES.flip(0), (NODES, NODES), "holds the features of another graph"),
        (EDGES, (12, 12), "holds features of 11 nodes, the graph has 12"),
        (EDGES + 1, None, "holds features of 11 nodes, the graph has 12"),
    ):
        with pytest.raises(FileError, match=message):
            put_edges(store, edges, size)


def test_wrong_calls(path):
    bits, int8 = packed(size=33), packed("int8", size=33)
    other, wide = packed("int8", size=33, centre=0.25), packed("int8", size=34)
    for blocks, error, message in (
        ([], ValueError, "blocks must hold at least one block"),
        ([bits, torch.randn(1, 34)], ValueError, "33 features .* got 34 features"),
        ([bits, packed("scaled", size=33)], ValueError, "got 33 features with scale in"),
        ([bits, torch.ones(2, 33).int()], TypeError, "got torch.int32 Tensor in block 1"),
        ([int8, other], ValueError, "by scales .* like the first, got 33 .* in block 1"),
        ([int8, wide], ValueError, "33 features of 8 bits .* got 34 features of 8 bits"),
        ([int8, bits], ValueError, "got 33 features without scale in"),
        ([int8, torch.randn(2, 33)], ValueError, "got 33 features without scale in block 1"),
    ):
        with pytest.raises(error, match=f"write_features: .*{message}"):
            PackedFeatureStore.write(path, blocks)
        assert not list(path.parent.iterdir())
    with pytest.raises(FileNotFoundError):
        PackedFeatureStore(path)
    with pytest.raises(FileError, match="must be a regular file"):
        PackedFeatureStore(path.parent)
    written(path)
    store = PackedFeatureStore(path)
    one = torch.tensor([11])
    for call, error, message in (
        (lambda: get(store, one), IndexError, "within 11 rows, got 11"),
        (lambda: store.put_tensor(bits, **X, index=None), ValueError, "x is read from a file"),
        (lambda: store.put_tensor(bits, **Y, index=one), ValueError, "index must be None"),
        (lambda: store.get_tensor(**Y, index=None), KeyError, "there is no tensor for"),
    ):
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("kind", ["bits", "int8"])
def test_workers_of_a_loader_read_the_file(path, kind):
    whole = written(path, kind)
    read = partial(get, PackedFeatureStore(path))
    parts = torch.arange(NODES).split(3)
    loader = DataLoader(parts, batch_size=None, num_workers=1, collate_fn=read)
    assert bitgnn.cat(list(loader)).equal(whole)
