"""PyG's data, batches, transforms and loaders with packed features, beside the same with floats."""

import copy
import subprocess
import sys

import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import (
    ClusterData,
    ClusterLoader,
    DataLoader,
    GraphSAINTNodeSampler,
    RandomNodeLoader,
)
from torch_geometric.loader.utils import filter_data, filter_hetero_data, index_select
from torch_geometric.transforms import RandomNodeSplit, ToUndirected
from torch_geometric.typing import WITH_METIS, WITH_PYG_LIB, WITH_TORCH_SPARSE

from bitgnn import BitTensor, freeze
from bitgnn.bits import BitFeatures, BitImages, Int8Features, Int8Tensor, TernaryTensor
from bitgnn.models import GCN
from bitgnn.nn import BinaryLinear, GCNConv, GraphConv, SAGEConv

NODES, SIZE = 12, 40
EDGES = torch.zeros(2, 0, dtype=torch.long)
KINDS = pytest.mark.parametrize("kind", [BitFeatures, Int8Features])


def rows_of(x, kind=BitFeatures, centre=0.25):
    if kind is BitFeatures:
        return BitTensor.from_float(x).as_features()
    scales = torch.full((x.size(1),), centre), torch.full((x.size(1),), 0.5)
    return Int8Tensor.from_float(x, *scales).as_features()


def pair(rows=NODES, edges=30, kind=BitFeatures):
    """The same graph with packed features and with floats."""
    x = rows_of(torch.randn(rows, SIZE), kind)
    edge_index = torch.randint(0, rows, (2, edges))
    rest = {"edge_index": edge_index, "y": torch.arange(rows), "edge_attr": torch.randn(edges, 2)}
    return Data(x=x, **rest), Data(x=x.to_float(), **rest)


def check(packed, floats, kind=BitFeatures):
    assert packed.keys() == floats.keys()
    assert type(packed.x) is kind
    assert torch.equal(packed.x.to_float(), floats.x)
    for key in set(floats.keys()) - {"x"}:
        assert torch.equal(torch.as_tensor(packed[key]), torch.as_tensor(floats[key]))
    assert packed.num_nodes == floats.num_nodes
    assert packed.num_node_features == floats.num_node_features
    assert repr(packed) == repr(floats)


@KINDS
def test_data_is_cut_and_copied(kind):
    packed, floats = pair(kind=kind)
    mask, index = torch.rand(NODES) < 0.5, torch.randperm(NODES)[:5]
    for change in (
        lambda data: data,
        lambda data: data.clone(),
        lambda data: copy.copy(data).contiguous(),
        lambda data: copy.deepcopy(data),
        lambda data: data.to("cpu", non_blocking=True).cpu().detach(),
        lambda data: data.subgraph(mask),
        lambda data: data.subgraph(index),
        lambda data: data.edge_subgraph(torch.arange(4)),
        ToUndirected(),
    ):
        check(change(packed), change(floats), kind)
    assert packed.is_node_attr("x")
    assert not packed.is_edge_attr("x")
    assert packed.validate()
    assert not packed.is_cuda
    assert packed.clone().share_memory_().x.is_shared()
    split = RandomNodeSplit(num_val=2, num_test=2)(packed)
    assert split.train_mask.sum() == NODES - 4
    assert packed.to_dict()["x"].equal(packed.x)


@pytest.mark.parametrize("kind", ["bits", "scaled", "int8"])
def test_batches_join_and_part_again(kind):
    whole = rows_of(torch.randn(8, SIZE), Int8Features if kind == "int8" else BitFeatures)
    if kind == "scaled":
        whole = BitTensor.from_float(torch.randn(8, SIZE), scale="mean").as_features()
    x = [whole[:3], whole[:0], whole[3:]]
    graphs = [Data(x=part, edge_index=torch.zeros(2, 2, dtype=torch.long)) for part in x]
    batch = Batch.from_data_list(graphs)
    assert batch.x.equal(whole)
    assert batch.batch.tolist() == [0] * 3 + [2] * 5
    for graph, part in zip(batch.to_data_list(), x, strict=True):
        assert graph.x.equal(part)
    assert batch[2].x.equal(x[2])
    if kind == "int8":
        graphs[1] = Data(x=rows_of(torch.randn(2, SIZE), Int8Features, 0.5), edge_index=EDGES)
        with pytest.raises(ValueError, match="must be packed by the scales"):
            Batch.from_data_list(graphs)


@KINDS
@pytest.mark.parametrize("workers", [0, 1])
def test_loaders(workers, kind):
    packed, _ = pair(kind=kind)
    graphs = [packed.subgraph(torch.arange(rows)) for rows in (3, 4, 5)]
    batches = list(DataLoader(graphs, batch_size=2, num_workers=workers))
    for batch, whole in zip(batches, (graphs[:2], graphs[2:]), strict=True):
        assert type(batch.x) is kind
        assert batch.x.equal(torch.cat([graph.x for graph in whole]))
    packed.n_id = torch.arange(NODES)
    batches = list(RandomNodeLoader(packed, num_parts=3, num_workers=workers))
    if WITH_TORCH_SPARSE:
        batches += GraphSAINTNodeSampler(packed, batch_size=4, num_steps=2)
    if WITH_METIS or WITH_PYG_LIB:
        batches += ClusterLoader(ClusterData(packed, num_parts=3))
    for batch in batches:
        assert batch.x.equal(packed.x[batch.n_id])


@KINDS
def test_parts_of_samplers(kind):
    """What ClusterLoader, GraphSAINT and NeighborLoader do with features behind their samplers."""
    packed, floats = pair(kind=kind)
    node, edge = torch.tensor([3, 1, 7]), torch.tensor([4, 2])
    row, col = torch.tensor([0, 1]), torch.tensor([2, 2])
    parts = (filter_data(data, node, row, col, edge) for data in (packed, floats))
    check(*parts, kind)
    assert index_select(packed.x, node.int()).equal(packed.x[node])

    hetero = HeteroData()
    hetero["paper"].x, hetero["author"].x = packed.x, packed.x[:4]
    key = ("author", "writes", "paper")
    hetero[key].edge_index = torch.tensor([[0, 1, 3], [5, 5, 11]])
    nodes = {"paper": torch.tensor([5, 11]), "author": torch.tensor([3, 0])}
    cut = filter_hetero_data(hetero, nodes, *({key: torch.tensor([i])} for i in range(3)))
    assert cut["paper"].x.equal(packed.x[[5, 11]])
    assert cut["author"].x.equal(packed.x[[3, 0]])
    assert hetero.num_node_features == {"paper": SIZE, "author": SIZE}
    assert ToUndirected()(hetero)["paper"].x.equal(packed.x)
    assert hetero.subgraph({"paper": torch.tensor([5])})["paper"].x.equal(packed.x[[5]])
    assert hetero.to_homogeneous().x.equal(torch.cat([packed.x, packed.x[:4]]))
    assert Batch.from_data_list([hetero, hetero])["author"].x.shape == (8, SIZE)


@pytest.mark.parametrize("layer", [GCNConv, SAGEConv, GraphConv])
def test_layers_take_packed_features(layer):
    packed, floats = pair()
    for precision in ("bin", "full", "fp32"):
        conv = layer(SIZE, 8, precision=precision).eval()
        expected = conv(floats.x, floats.edge_index)
        sides = (packed.x, packed.x) if layer is not GCNConv else packed.x
        for x in (packed.x, BitTensor(packed.x.words, SIZE), sides):
            torch.testing.assert_close(conv(x, packed.edge_index), expected)
    linear = BinaryLinear(SIZE, 3)
    torch.testing.assert_close(linear(packed.x), linear(floats.x))


def test_models_and_frozen_ones_take_packed_data():
    packed, floats = pair()
    model = GCN(SIZE, 16, 4, precision="bin").eval()
    expected = model(floats.x, floats.edge_index)
    torch.testing.assert_close(model(packed.x, packed.edge_index), expected)
    frozen = freeze(model)
    bits = frozen.pack_features(floats.x)
    data = Data(x=bits.as_features(), edge_index=floats.edge_index)
    expected = frozen(bits, floats.edge_index)
    assert torch.equal(frozen(data.x, data.edge_index), expected)
    batch = Batch.from_data_list([data, data])
    torch.testing.assert_close(frozen(batch.x, batch.edge_index), torch.cat([expected, expected]))
    with pytest.raises(ValueError, match=r"x must be \[N, \d+\], got \[\d+\]"):
        frozen(data.x[0], data.edge_index)
    with pytest.raises(TypeError, match="x must be floats, got packed features"):
        frozen.pack_features(data.x)


def test_data_holds_packed_rows_as_tensors():
    packed, floats = pair()
    bits = BitTensor(packed.x.words, SIZE)
    assert type(bits) is BitTensor
    for name in ("x", "pos", "seen"):
        for data in (Data(**{name: bits}, num_nodes=NODES), Data(num_nodes=NODES)):
            data[name] = bits
            assert data[name].equal(bits)
            cut = data.subgraph(torch.tensor([4, 0]))
            assert cut[name].equal(bits[[4, 0]])
            batch = Batch.from_data_list([data, cut])
            assert batch[name].equal(torch.cat([bits, bits[[4, 0]]]))
            assert batch[1][name].equal(cut[name])
    data = packed.clone()
    data.x = bits
    check(data, floats)
    hetero = HeteroData(paper={"x": bits})
    hetero["author"].x = bits[:4]
    assert hetero.num_nodes == NODES + 4
    assert hetero.subgraph({"paper": torch.tensor([5])})["paper"].x.equal(bits[[5]])


def test_packed_rows_that_are_no_tensors_are_refused():
    ternary = TernaryTensor.from_float(torch.randn(NODES, SIZE), 1.0)
    images = BitImages.from_float(torch.randn(NODES, 3, 4, 4))
    for rows in (ternary, images):
        with pytest.raises(TypeError, match=f"{rows.NAME}: PyG's Data cuts and joins tensors"):
            Data(x=rows)


def test_storages_learn_of_packed_rows_whatever_is_imported_first():
    code = """
import sys
import bitgnn
assert "torch_geometric" not in sys.modules
import torch
from torch_geometric.data import Data
data = Data(x=bitgnn.BitTensor.from_float(torch.randn(6, 5)), edge_index=torch.zeros(2, 0).long())
assert data.num_nodes == 6 and len(data.subgraph(torch.tensor([1])).x) == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True)
