"""PackedFeatureStore: files written in a stream, rows read as PyG's loaders do, damage told."""

import pickle

import pytest
import torch
from safetensors.torch import load_file
from torch.utils.data import DataLoader
from torch_geometric.data import FeatureStore, GraphStore
from torch_geometric.loader.utils import (
    filter_custom_hetero_store,
    filter_custom_store,
    get_input_nodes,
)

import bitgnn
from bitgnn import BitTensor, FileError
from bitgnn.bits import BitFeatures
from bitgnn.data import PackedFeatureStore
from bitgnn.data.features import HEADER_BYTES

NODES = 11
EDGES = torch.tensor([[0, 3, 10], [1, 1, 2]])


def written(path, size=40, scale=None, edge_index=None, rows=(4, 0, 7)):
    blocks = [BitTensor.from_float(torch.randn(n, size), scale=scale) for n in rows]
    PackedFeatureStore.write(path, iter(blocks), edge_index)
    return bitgnn.cat(blocks)


def get(store, index=None):
    return store.get_tensor(group_name=None, attr_name="x", index=index)


@pytest.mark.parametrize("size", [0, 1, 31, 33, 64])
@pytest.mark.parametrize("scale", [None, "mean"])
def test_rows_are_those_written(tmp_path, size, scale):
    whole = written(tmp_path / "x", size, scale)
    store = PackedFeatureStore(tmp_path / "x")
    store.verify()
    assert isinstance(store, FeatureStore)
    assert isinstance(store, GraphStore)
    assert store.get_tensor_size(group_name=None, attr_name="x") == (NODES, size)
    indices = [None, slice(2, 5), torch.tensor([9, 0, 9]), torch.rand(NODES) < 0.5, [1], 3]
    for index in indices:
        found = get(store, index)
        assert isinstance(found, BitFeatures)
        assert found.equal(whole if index is None else whole[index])
    assert get(pickle.loads(pickle.dumps(store))).equal(whole)
    held = load_file(tmp_path / "x")
    assert torch.equal(held["words"], whole.words)
    assert ("scale" in held) == (scale is not None)


def test_writes_to_rows_stay_in_memory(tmp_path):
    whole = written(tmp_path / "x")
    get(PackedFeatureStore(tmp_path / "x")).words.zero_()
    assert get(PackedFeatureStore(tmp_path / "x")).equal(whole)


def test_floats_are_packed_and_no_rows_are_a_file(tmp_path):
    x = torch.randn(5, 33)
    PackedFeatureStore.write(tmp_path / "x", [x[:2], x[2:]])
    assert get(PackedFeatureStore(tmp_path / "x")).equal(BitTensor.from_float(x))
    whole = written(tmp_path / "none", rows=(0,))
    assert get(PackedFeatureStore(tmp_path / "none")).equal(whole)


def test_loaders_read_batches(tmp_path):
    whole = written(tmp_path / "x", edge_index=EDGES)
    store = PackedFeatureStore(tmp_path / "x")
    store.put_edge_index(EDGES, edge_type=None, layout="coo", size=(NODES, NODES))
    store.put_tensor(torch.arange(NODES), group_name=None, attr_name="y", index=None)
    node, row, col = torch.tensor([10, 2, 3]), torch.tensor([0]), torch.tensor([1])
    batch = filter_custom_store(store, store, node, row, col, None)
    assert batch.x.equal(whole[node])
    assert batch.y.tolist() == [10, 2, 3]
    assert batch.num_nodes == 3
    assert len(store.get_all_tensor_attrs()) == 2
    assert torch.equal(store.get_edge_index(store.get_all_edge_attrs()[0]), EDGES)
    assert [len(part) for part in store.csc()[:2]] == [3, NODES + 1]
    parts = torch.arange(NODES).split(3)
    loader = DataLoader(parts, batch_size=None, num_workers=1, collate_fn=Read(store))
    assert bitgnn.cat(list(loader)).equal(whole)
    assert store.remove_tensor(group_name=None, attr_name="y", index=None)
    assert store.remove_edge_index(store.get_all_edge_attrs()[0])


class Read:
    def __init__(self, store):
        self.store = store

    def __call__(self, nodes):
        return get(self.store, nodes)


def test_heterogeneous_graphs(tmp_path):
    papers, authors = written(tmp_path / "paper"), written(tmp_path / "author", rows=(3,))
    store = PackedFeatureStore({name: tmp_path / name for name in ("paper", "author")})
    key = ("author", "writes", "paper")
    edges = torch.tensor([[0, 2], [10, 4]])
    store.put_edge_index(edges, edge_type=key, layout="coo", size=(3, NODES))
    nodes = {"paper": torch.tensor([4]), "author": torch.tensor([2, 0])}
    zero = torch.tensor([0])
    batch = filter_custom_hetero_store(store, store, nodes, {key: zero}, {key: zero}, {key: zero})
    assert batch["paper"].x.equal(papers[[4]])
    assert batch["author"].x.equal(authors[[2, 0]])
    assert len(get_input_nodes((store, store), "paper")[1]) == NODES
    with pytest.raises(FileError, match=r"author: holds features of 3 nodes, the graph has 4"):
        store.put_edge_index(edges, edge_type=key, layout="coo", size=(4, NODES))


def damage(path, change):
    data = bytearray(path.read_bytes())
    changed = change(data)
    path.write_bytes(data if changed is None else changed)


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
def test_damaged_files_are_refused(tmp_path, change, message):
    path = tmp_path / "x"
    written(path)
    damage(path, change)
    with pytest.raises(FileError, match=f"{path}: {message}"):
        PackedFeatureStore(path)


def test_damage_inside_is_found(tmp_path):
    path = tmp_path / "x"
    written(path)
    damage(path, lambda data: data.__setitem__(HEADER_BYTES, data[HEADER_BYTES] ^ 1))
    store = PackedFeatureStore(path)
    with pytest.raises(FileError, match="is damaged"):
        store.verify()
    damage(path, lambda data: data.__setitem__(HEADER_BYTES + 7, 255))
    with pytest.raises(FileError, match="padding bits must be 0, got 1 rows"):
        get(PackedFeatureStore(path), torch.tensor([0, 3]))
    damage(path, lambda data: data[:-4])
    with pytest.raises(FileError, match="was cut short while it was in use"):
        get(store)


def test_another_graph_is_refused(tmp_path):
    written(tmp_path / "x", edge_index=EDGES)
    store = PackedFeatureStore(tmp_path / "x")
    with pytest.raises(FileError, match="holds the features of another graph"):
        store.put_edge_index(EDGES.flip(0), edge_type=None, layout="coo", size=(NODES, NODES))
    for edges, size in ((EDGES, (12, 12)), (EDGES + 1, None)):
        with pytest.raises(FileError, match="holds features of 11 nodes, the graph has 12"):
            store.put_edge_index(edges, edge_type=None, layout="coo", size=size)


def test_wrong_calls(tmp_path):
    x = torch.randn(2, 33)
    bits, scaled = BitTensor.from_float(x), BitTensor.from_float(x, scale="mean")
    for blocks, error, message in (
        ([], ValueError, "blocks must hold at least one block"),
        (
            [bits, torch.randn(1, 34)],
            ValueError,
            "33 features .* got 34 features",
        ),
        ([bits, scaled], ValueError, "got 33 features with scale in"),
        ([bits, torch.ones(2, 33).int()], TypeError, "got torch.int32 Tensor in block 1"),
    ):
        with pytest.raises(error, match=f"write_features: .*{message}"):
            PackedFeatureStore.write(tmp_path / "x", blocks)
        assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        PackedFeatureStore(tmp_path / "x")
    with pytest.raises(FileError, match="must be a regular file"):
        PackedFeatureStore(tmp_path)
    written(tmp_path / "x")
    store = PackedFeatureStore(tmp_path / "x")
    with pytest.raises(IndexError, match="within 11 rows, got 11"):
        get(store, torch.tensor([11]))
    with pytest.raises(ValueError, match="x is read from a file"):
        store.put_tensor(bits, group_name=None, attr_name="x", index=None)
    with pytest.raises(ValueError, match="index must be None"):
        store.put_tensor(bits, group_name=None, attr_name="y", index=torch.tensor([0]))
    with pytest.raises(KeyError, match="there is no tensor for"):
        store.get_tensor(group_name=None, attr_name="z", index=None)
