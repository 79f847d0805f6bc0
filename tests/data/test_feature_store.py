"""PackedFeatureStore: files written in a stream, rows read as PyG's loaders do, damage told."""

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
from bitgnn.bits import BitFeatures
from bitgnn.data import PackedFeatureStore
from bitgnn.data.feature_file import HEADER_BYTES

NODES = 11
EDGES = torch.tensor([[0, 3, 10], [1, 1, 2]])
X = {"group_name": None, "attr_name": "x"}
Y = {"group_name": None, "attr_name": "y"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x"


def written(path, size=40, scale=None, edge_index=None, rows=(4, 0, 7)):
    blocks = [BitTensor.from_float(torch.randn(n, size), scale=scale) for n in rows]
    PackedFeatureStore.write(path, iter(blocks), edge_index)
    return bitgnn.cat(blocks)


def get(store, index=None):
    return store.get_tensor(**X, index=index)


def put_edges(store, edges, size, edge_type=None):
    store.put_edge_index(edges, edge_type=edge_type, layout="coo", size=size)


@pytest.mark.parametrize("size", [0, 1, 31, 33, 64])
@pytest.mark.parametrize("scale", [None, "mean"])
def test_rows_are_those_written(path, size, scale):
    whole = written(path, size, scale)
    store = PackedFeatureStore(path)
    store.verify()
    assert isinstance(store, FeatureStore)
    assert isinstance(store, GraphStore)
    assert store.get_tensor_size(**X) == (NODES, size)
    indices = [slice(2, 5), torch.tensor([9, 0, 9]), torch.rand(NODES) < 0.5, [1], 3]
    for index in indices:
        assert isinstance(get(store, index), BitFeatures)
        assert get(store, index).equal(whole[index])
    assert get(pickle.loads(pickle.dumps(store))).equal(whole)
    held = load_file(path)
    assert torch.equal(held["words"], whole.words)
    assert ("scale" in held) == (scale is not None)
    get(store).words.zero_()  # stays in memory
    assert get(PackedFeatureStore(path)).equal(whole)


def test_floats_are_packed_and_no_rows_are_a_file(path):
    x = torch.randn(5, 33)
    PackedFeatureStore.write(path, [x[:2], x[2:]])
    assert get(PackedFeatureStore(path)).equal(BitTensor.from_float(x))
    whole = written(path, rows=(0,))
    assert get(PackedFeatureStore(path)).equal(whole)


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-1], "has 1111 bytes, 1112 were written"),
        (lambda data: data + b"0", "has 1113 bytes, 1112 were written"),
        (lambda data: data[:500], "is not a file of packed features"),
        (lambda data: b"", "is not a file of packed features"),
        (lambda data: b"\xff" * 8 + data[8:], "is not a file of packed features"),
        (lambda data: data.replace(b"[11, 2]", b"[12, 2]"), "is not a file of packed features"),
        (lambda data: data.replace(b'"1"', b'"2"'), "is not a file of packed features, version 1"),
        (lambda data: data.replace(b"{", b"[", 1), "is not valid JSON"),
    ],
)
def test_damaged_files_are_refused(path, change, message):
    written(path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(FileError, match=f"{path}: {message}"):
        PackedFeatureStore(path)


def test_damage_inside_is_found(path):
    def set_byte(place, value):
        data = bytearray(path.read_bytes())
        data[place] = value
        path.write_bytes(data)

    written(path)
    set_byte(HEADER_BYTES, path.read_bytes()[HEADER_BYTES] ^ 1)
    store = PackedFeatureStore(path)
    with pytest.raises(FileError, match="is damaged"):
        store.verify()
    set_byte(HEADER_BYTES + 7, 255)
    with pytest.raises(FileError, match="padding bits must be 0, got 1 rows"):
        get(PackedFeatureStore(path), torch.tensor([0, 3]))
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(FileError, match="was cut short while it was in use"):
        get(store)


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
    x = torch.randn(2, 33)
    bits, scaled = BitTensor.from_float(x), BitTensor.from_float(x, scale="mean")
    for blocks, error, message in (
        ([], ValueError, "blocks must hold at least one block"),
        ([bits, torch.randn(1, 34)], ValueError, "33 features .* got 34 features"),
        ([bits, scaled], ValueError, "got 33 features with scale in"),
        ([bits, torch.ones(2, 33).int()], TypeError, "got torch.int32 Tensor in block 1"),
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


def test_workers_of_a_loader_read_the_file(path):
    whole = written(path)
    read = partial(get, PackedFeatureStore(path))
    parts = torch.arange(NODES).split(3)
    loader = DataLoader(parts, batch_size=None, num_workers=1, collate_fn=read)
    assert bitgnn.cat(list(loader)).equal(whole)
