"""Mini-batches through frozen models: every batch equals the model on its own subgraph."""

import pytest
import torch
from chains import CLASSES, FEATURES, Chain, N, precision, shake
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import PrefetchLoader

from bitgnn.convert import freeze
from bitgnn.data import NeighborLoader
from bitgnn.inference import predict, stream
from bitgnn.nn import Linear

BIN = ["FBB+BBB", "BBB+BBB", "BBF+FBF"]
SLEEP = 100_000_000
"""Clock cycles of a GPU, long beside what the CPU takes to make a batch ready."""


@pytest.fixture
def batches(edges):
    return list(NeighborLoader(Data(edge_index=edges, num_nodes=N), [4, 3], batch_size=17))


def expected(frozen, batch, x):
    """The model on the subgraph of a batch, nothing of the stream's in use."""
    device = next(frozen.buffers()).device
    part, edge_index = x[batch.n_id].to(device), batch.edge_index.to(device)
    graph = frozen.prepare_graph(edge_index, len(batch.n_id))
    return frozen(part, graph)[: batch.batch_size]


@pytest.mark.parametrize("kind", ["gcn", "sage", "graph"])
@pytest.mark.parametrize("letters", [BIN, ["full", "full"], ["FBB+BFB", "BBF+FFF"]])
def test_batches_equal_the_model_on_their_subgraphs(kind, letters, device, x, edges, batches):
    letters = [precision(text) if "+" in text else text for text in letters]
    frozen = freeze(shake(Chain(kind, letters), x, edges), check=False).to(device)
    wanted = [expected(frozen, batch, x) for batch in batches]
    stores = [x]
    if frozen.program.entry is not None:
        packed = frozen.pack_features(x.to(device), layout="dense")
        stores += [packed, packed.to("cpu")]
    for store in stores:
        found = list(stream(frozen, iter(batches), store))
        assert len(found) == len(batches) == -(-N // 17)
        for (nodes, result), batch, scores in zip(found, batches, wanted, strict=True):
            assert torch.equal(nodes, batch.n_id[: batch.batch_size])
            assert torch.equal(result, scores)
    together = predict(frozen, batches, x)
    assert torch.equal(together.nodes, torch.arange(N))
    assert torch.equal(together.result, torch.cat(wanted))


@pytest.mark.cuda
@pytest.mark.parametrize("prefetched", [False, True])
@pytest.mark.parametrize("has_graph", [False, True])
def test_memory_of_a_batch_is_kept_until_it_is_computed(has_graph, prefetched):
    """The device is far behind the CPU, and batches of one size ask for the same memory again."""
    torch.manual_seed(0)
    rows, seeds, number = 2000, 1500, 8
    x = torch.randn(number, rows, FEATURES)
    graphs = torch.randint(rows, (number, 2, 20 * rows))
    layers = [Linear(FEATURES, 40, precision="FBB"), Linear(40, CLASSES, precision="BBF")]
    network = Chain("sage", BIN) if has_graph else nn.Sequential(*layers)
    frozen = freeze(shake(network, x[0], *[graphs[0]] * has_graph)).to("cuda")
    inputs = zip(x.cuda(), graphs.cuda() if has_graph else [None] * number, strict=True)
    wanted = [frozen(part, graph)[:seeds] for part, graph in inputs]
    torch.cuda.synchronize()

    def batches():
        for number, (part, graph) in enumerate(zip(x, graphs, strict=True)):
            n_id = torch.arange(rows) + number
            yield Data(x=part, edge_index=graph, n_id=n_id, batch_size=seeds)

    loader = PrefetchLoader(batches(), torch.device("cuda")) if prefetched else batches()
    found = []
    torch.cuda._sleep(SLEEP)
    for nodes, result in stream(frozen, loader):
        found.append((nodes.sum(), result))
        torch.cuda._sleep(SLEEP)
    for number, ((nodes, result), scores) in enumerate(zip(found, wanted, strict=True)):
        assert int(nodes) == seeds * (seeds - 1) // 2 + number * seeds
        assert torch.equal(result, scores)


def test_features_as_the_pattern_of_set_bits(device, edges, batches):
    x = (torch.rand(N, FEATURES, generator=torch.Generator().manual_seed(1)) < 0.1).float() - 0.5
    chain = Chain("gcn", [precision("FBB+BBB", input_norm=None), "BBF+FBF"])
    frozen = freeze(shake(chain, x, edges)).to(device)
    pattern = frozen.pack_features(x.to(device), layout="sparse")
    for (_, result), batch in zip(stream(frozen, batches, pattern), batches, strict=True):
        assert torch.equal(result, expected(frozen, batch, x))


def test_batches_with_their_own_features_and_classes(x, edges, batches):
    frozen = freeze(shake(Chain("sage", BIN), x, edges), output="classes")
    held = [
        Data(x=x[batch.n_id], edge_index=batch.edge_index, batch_size=batch.batch_size)
        for batch in batches
    ]
    found = predict(frozen, held)
    assert found.nodes is None
    assert found.result.dtype == torch.int64
    assert torch.equal(found.result, torch.cat([expected(frozen, b, x) for b in batches]))
    whole = Data(x=x, edge_index=edges)
    assert torch.equal(predict(frozen, [whole]).result, frozen(x, edges))


def test_batches_are_asked_for_one_ahead_and_no_further(x, edges, batches):
    frozen = freeze(shake(Chain("gcn", BIN), x, edges))
    asked = []

    def loader():
        try:
            for number, batch in enumerate(batches):
                asked.append(number)
                yield batch
        finally:
            asked.append("closed")

    found = stream(frozen, loader(), x)
    assert asked == []
    next(found)
    assert asked == [0, 1]
    found.close()
    assert asked == [0, 1, "closed"]


def test_refusals(x, edges, batches):
    model = shake(Chain("gcn", BIN), x, edges)
    with pytest.raises(TypeError, match="model must be a FrozenModel, got Chain"):
        stream(model, batches, x)
    frozen = freeze(model, features="packed")
    for arguments, message in (
        ((batches, x), "x must be the result of pack_features, got floats"),
        ((batches,), "batch must hold x where no features are given"),
        (([Data(x=x)],), "must hold edge_index or adj_t, got neither"),
        (([], x), "at least one batch, got none"),
    ):
        with pytest.raises(ValueError, match=message):
            predict(frozen, *arguments)
