"""LightGCN in bits: PyG's keys and methods, gradients, codes, recommendations, checkpoints."""

import pytest
import torch
import torch_geometric.nn.models
from torch_geometric.utils import to_undirected

import bitgnn
from bitgnn import BitTensor, FileError
from bitgnn.models import LightGCN
from bitgnn.nn import Recommender

USERS, ITEMS, SIZE = 30, 50, 40


@pytest.fixture
def graph():
    """Pairs ``[2, E]`` of users and items, and the graph with both directions."""
    generator = torch.Generator().manual_seed(0)
    users = torch.randint(USERS, (200,), generator=generator)
    items = torch.randint(ITEMS, (200,), generator=generator) + USERS
    pairs = torch.stack([users, items]).unique(dim=1)
    return pairs, to_undirected(pairs)


def made(**options):
    torch.manual_seed(1)
    return LightGCN(USERS + ITEMS, SIZE, 2, **options)


def test_pygs_keys_state_and_arithmetic(graph):
    torch.manual_seed(2)
    theirs = torch_geometric.nn.models.LightGCN(USERS + ITEMS, SIZE, 2)
    plain, binary = made(precision="fp32"), made()
    assert plain.state_dict().keys() == theirs.state_dict().keys()
    assert binary.state_dict().keys() == theirs.state_dict().keys() | {"scale"}
    before = binary.scale.item()
    state = theirs.state_dict()
    for model in (plain, binary):
        model.load_state_dict(state)
    assert "scale" not in state
    assert binary.scale.item() == before
    assert torch.equal(plain(graph[1]), theirs(graph[1]))
    items = torch.arange(USERS, USERS + ITEMS)
    users = torch.arange(USERS)
    found = plain.recommend(graph[1], src_index=users, dst_index=items, k=3)
    assert torch.equal(found, theirs.recommend(graph[1], src_index=users, dst_index=items, k=3))
    embedding = theirs.get_embedding(graph[1])
    centred = embedding - embedding.mean(0)
    assert torch.equal(binary.get_embedding(graph[1]) > 0, centred >= 0)


def test_scores_are_those_of_codes(graph):
    model = made()
    frozen = model.freeze(graph[1])
    assert isinstance(frozen, Recommender)
    assert frozen.words.nbytes == 4 * 2 * (USERS + ITEMS)
    torch.testing.assert_close(frozen(graph[0]), model(graph[1], graph[0]).detach())
    assert torch.equal(
        frozen.codes.to_float() * model.scale, model.get_embedding(graph[1]).detach()
    )


def test_it_learns(graph):
    pairs, edges = graph
    model = made()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(3)
    losses = []
    for _ in range(60):
        wrong = torch.randint(ITEMS, (pairs.size(1),), generator=generator) + USERS
        label_index = torch.cat([pairs, torch.stack([pairs[0], wrong])], 1)
        right, other = model(edges, label_index).chunk(2)
        loss = model.recommendation_loss(right, other, node_id=label_index.unique())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert model.scale.grad is not None
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])


def test_recommendations(graph):
    pairs, edges = graph
    model = made()
    frozen, items = model.freeze(edges), torch.arange(USERS, USERS + ITEMS).flip(0)
    users = torch.tensor([3, 0, 29, 3])
    scores = frozen(torch.cartesian_prod(users, items).T).view(len(users), ITEMS)
    order = items[scores.sort(dim=1, descending=True, stable=True).indices]
    assert torch.equal(frozen.recommend(users, items, 7), order[:, :7])
    assert torch.equal(model.recommend(edges, None, users, items, 7), order[:, :7])
    assert frozen.recommend(k=2).shape == (USERS + ITEMS, 2)
    found = frozen.recommend(users, items, ITEMS, exclude=pairs)
    for row, (user, best) in enumerate(zip(users.tolist(), order.tolist(), strict=True)):
        seen = set(pairs[1][pairs[0] == user].tolist())
        left = [item for item in best if item not in seen]
        assert found[row].tolist() == left + [-1] * (ITEMS - len(left))
        few = frozen.recommend(users, items, 4, exclude=pairs)
        assert few[row].tolist() == left[:4]
    assert frozen.recommend(users[:0], items, 4, exclude=pairs).shape == (0, 4)
    with pytest.raises(ValueError, match="k must be from 0 to the 50 nodes to choose from, got 51"):
        frozen.recommend(users, items, 51)


def test_checkpoint(graph, tmp_path):
    frozen = made().freeze(graph[1])
    bitgnn.save(frozen, tmp_path / "codes")
    loaded = bitgnn.load(tmp_path / "codes")
    assert isinstance(loaded, Recommender)
    assert torch.equal(loaded.words, frozen.words)
    assert torch.equal(loaded(graph[0]), frozen(graph[0]))
    tensors = next((tmp_path / "codes").glob("*.safetensors"))
    tensors.write_bytes(tensors.read_bytes()[:-1])
    with pytest.raises(FileError):
        bitgnn.load(tmp_path / "codes")


def test_wrong_arguments(graph):
    with pytest.raises(ValueError, match="precision must be 'bin' or 'fp32', got 'full'"):
        made(precision="full")
    with pytest.raises(ValueError, match="precision must be 'bin', got 'fp32'"):
        made(precision="fp32").freeze(graph[1])
    model = made()
    with torch.no_grad():
        model.embedding.weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match="embeddings must be finite, got NaN or infinity"):
        model.freeze(graph[1])
    codes = BitTensor(torch.zeros(2, 1).int(), 20)
    with pytest.raises(TypeError, match="codes must be a BitTensor, got Tensor"):
        Recommender(torch.zeros(2, 20), torch.ones(()))
    with pytest.raises(ValueError, match="codes must be a matrix without a scale"):
        Recommender(codes[0], torch.ones(()))
    with pytest.raises(ValueError, match="scale must be one finite number"):
        Recommender(codes, torch.tensor(torch.inf))
