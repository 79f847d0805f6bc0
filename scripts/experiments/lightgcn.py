"""Trains LightGCN in floats and distils it to bits on pairs of users and items: Recall@20, NDCG@20.

Run as: python scripts/experiments/lightgcn.py FOLDER

FOLDER holds ``train.txt`` and ``test.txt`` as the authors of LightGCN give them (Gowalla, Yelp2018,
Amazon-Book): a line a user, its number and those of its items. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.measure.report import environment, write_json
from bitgnn.models import LightGCN

ROOT = Path(__file__).parents[2]
TOP = 20
USERS_AT_ONCE = 1024
PATIENCE = 10
"""Tests without a better one that end a training."""


class Interactions(NamedTuple):
    """Pairs int64 ``[2, E]`` of a user and an item, both counted from 0."""

    train: Tensor
    test: Tensor
    num_users: int
    num_items: int

    def graph(self, device: str) -> Tensor:
        """Symmetrically normalised adjacency of users, then items, as sparse rows."""
        users, items = self.train[0], self.train[1] + self.num_users
        places = torch.stack([torch.cat([users, items]), torch.cat([items, users])])
        nodes = self.num_users + self.num_items
        degree = places[0].bincount(minlength=nodes).clamp(min=1).to(torch.float32)
        values = degree.rsqrt()[places].prod(0)
        whole = torch.sparse_coo_tensor(places, values, (nodes, nodes), check_invariants=True)
        return whole.coalesce().to_sparse_csr().to(device)


class _SymmetricProduct(torch.autograd.Function):
    """The product of a symmetric sparse matrix and a dense one: its gradient is one, too."""

    @staticmethod
    def forward(ctx: Any, graph: Tensor, x: Tensor) -> Tensor:
        ctx.graph = graph
        return graph @ x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, ctx.graph @ grad


class SymmetricConv(nn.Module):
    """LGConv of a symmetric matrix, which torch would transpose in each backward pass."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: None = None) -> Tensor:
        """Embeddings ``[num_nodes, embedding_dim]`` of the next layer."""
        out: Tensor = _SymmetricProduct.apply(edge_index, x)
        return out


def make(data: Interactions, dim: int, layers: int, precision: Any) -> LightGCN:
    """A model for :meth:`Interactions.graph`."""
    model = LightGCN(data.num_users + data.num_items, dim, layers, precision=precision)
    model.convs = nn.ModuleList(SymmetricConv() for _ in range(layers))
    return model


def read_pairs(path: Path) -> Tensor:
    """Pairs int64 ``[2, E]`` of a file with a user and its items on each line."""
    pairs = []
    for number, line in enumerate(path.read_text(encoding="ascii").splitlines(), 1):
        try:
            user, *items = map(int, line.split() or ["-1"])
        except ValueError:
            raise ValueError(f"{path}:{number}: a line must hold numbers, got {line!r}") from None
        if user < 0 and not items:
            continue  # an empty line
        if min((user, *items)) < 0:
            raise ValueError(f"{path}:{number}: numbers must not be negative")
        pairs += [(user, item) for item in items]
    if not pairs:
        raise ValueError(f"{path}: has no pairs")
    return torch.tensor(pairs).T.contiguous()


def read(folder: Path) -> Interactions:
    """The pairs to train on, each once, and those to test."""
    train, test = (read_pairs(folder / name).unique(dim=1) for name in ("train.txt", "test.txt"))
    users, items = (int(torch.cat([train[i], test[i]]).max()) + 1 for i in range(2))
    return Interactions(train, test, users, items)


def ranking(model: LightGCN, graph: Tensor, data: Interactions) -> tuple[float, float]:
    """Recall@20 and NDCG@20: means over the users with test pairs, trained pairs left out."""
    device, most = graph.device, min(TOP, data.num_items)
    items = data.num_users + torch.arange(data.num_items, device=device)
    shift = torch.tensor([[0], [data.num_users]])
    trained, tested = (data.train + shift).to(device), (data.test + shift).to(device)
    nodes = data.num_users + data.num_items
    wanted = tested[0] * nodes + tested[1]
    relevant = tested[0].bincount(minlength=data.num_users)
    gains = 1 / torch.arange(2, TOP + 2, device=device).log2()
    recall = ndcg = 0.0
    users = relevant.nonzero().flatten()
    frozen = model.freeze(graph) if model.precision == "bin" else None
    with torch.no_grad():
        table = None if frozen is not None else directions(model, graph)
    for part in users.split(USERS_AT_ONCE):
        if frozen is not None:
            top = frozen.recommend(part, items, most, exclude=trained)
        else:
            scores = table[part] @ table[data.num_users :].T
            places = torch.full((nodes,), -1, device=device)
            places[part] = torch.arange(len(part), device=device)
            row = places[trained[0]]
            scores[row[row >= 0], (trained[1] - data.num_users)[row >= 0]] = -math.inf
            top = scores.topk(most).indices + data.num_users
        hits = torch.isin(part[:, None] * nodes + top, wanted).double()
        recall += float((hits.sum(1) / relevant[part]).sum())
        best = gains.double().cumsum(0)[relevant[part].clamp(max=TOP) - 1]
        ndcg += float(((hits * gains[: hits.size(1)]).sum(1) / best).sum())
    return recall / len(users), ndcg / len(users)


def directions(model: LightGCN, graph: Tensor) -> Tensor:
    """Embeddings ``[num_nodes, K]`` of length 1 in floats, whose products are cosines; or codes.

    Codes rank by cosines: all have one length. A teacher that ranks by lengths, too, teaches what
    they cannot learn.
    """
    embedding = model.get_embedding(graph)
    return embedding if model.precision == "bin" else functional.normalize(embedding)


class TrainedItems:
    """Targets of the float model: each user's shares of the items in training."""

    def __init__(self, data: Interactions, device: str) -> None:
        order = data.train[0].argsort(stable=True)
        self.items = data.train[1][order].to(device)
        self.counts = data.train[0].bincount(minlength=data.num_users).to(device)
        self.begins = self.counts.cumsum(0) - self.counts
        self.num_items = data.num_items

    def __call__(self, users: Tensor) -> Tensor:
        """Rows float32 ``[B, num_items]`` that sum to 1; all 0 for a user without items."""
        counts = self.counts[users]
        rows = torch.arange(len(users), device=users.device).repeat_interleave(counts)
        inside = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
        labels = torch.zeros(len(users), self.num_items, device=users.device)
        labels[rows, self.items[self.begins[users][rows] + inside]] = 1 / counts[rows].float()
        return labels


class TeachersItems:
    """Targets of the codes: the shares that a trained float model gives all items."""

    def __init__(
        self, teacher: LightGCN, graph: Tensor, num_users: int, temperature: float
    ) -> None:
        self.temperature = temperature
        with torch.no_grad():
            self.users, self.items = directions(teacher, graph).tensor_split([num_users])

    def __call__(self, users: Tensor) -> Tensor:
        """Rows float32 ``[B, num_items]`` that sum to 1."""
        return (self.users[users] @ self.items.T / self.temperature).softmax(dim=1)


def fit(
    model: LightGCN,
    labels: Callable[[Tensor], Tensor],
    graph: Tensor,
    data: Interactions,
    options: argparse.Namespace,
) -> list[dict[str, Any]]:
    """Train by the cross entropy of all items; the model ends as it was at its best test.

    Scores of floats are cosines over a temperature, those of codes their products.
    The learning rate falls to 0 in a straight line.
    As in the authors' code the test pairs choose the step. Training ends with the steps or the
    seconds, or after PATIENCE tests without a better one. Gives all tests.
    """
    temperature = options.temperature if model.precision == "fp32" else 1.0
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, options.steps)
    begin = time.perf_counter()
    tests: list[dict[str, Any]] = []
    best = 0
    for step in range(1, options.steps + 1):
        users = torch.randperm(data.num_users, device=graph.device)[: options.users]
        embedding = directions(model, graph)
        scores = embedding[users] @ embedding[data.num_users :].T / temperature
        loss = -(labels(users) * functional.log_softmax(scores, dim=1)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        falling.step()
        seconds = time.perf_counter() - begin
        is_over = step == options.steps or seconds > options.seconds
        if step % options.every and not is_over:
            continue
        recall, ndcg = ranking(model, graph, data)
        tests.append(
            {"step": step, "seconds": seconds, "loss": loss.item(), "recall": recall, "ndcg": ndcg}
        )
        print(
            f"{model.precision}, step {step}, {seconds:.0f} s: loss {loss.item():.4f}, "
            f"Recall@{TOP} {recall:.4f}, NDCG@{TOP} {ndcg:.4f}",
            flush=True,
        )
        if recall >= tests[best]["recall"]:
            best, state = len(tests) - 1, copy.deepcopy(model.state_dict())
        if is_over or len(tests) - best > PATIENCE:
            break
    model.load_state_dict(state)
    return tests


def train(data: Interactions, options: argparse.Namespace) -> dict[str, Any]:
    """Fit a float model to the pairs, and codes to its scores; gives the tests of both."""
    torch.manual_seed(options.seed)
    graph = data.graph(options.device)
    teacher = make(data, options.teacher_dim, options.layers, "fp32").to(options.device)
    trained = TrainedItems(data, options.device)
    tests = {"fp32": fit(teacher, trained, graph, data, options)}
    if options.precision == "bin":
        labels = TeachersItems(teacher, graph, data.num_users, options.temperature)
        model = make(data, options.dim, options.layers, "bin").to(options.device)
        with torch.no_grad():  # signs of random projections: angles stay roughly
            table = teacher.embedding.weight
            projection = torch.randn(table.size(1), options.dim, device=table.device)
            model.embedding.weight.copy_(table @ projection / table.size(1) ** 0.5)
            model.scale.fill_((options.temperature * options.dim) ** -0.5)
        tests["bin"] = fit(model, labels, graph, data, options)
    best = {name: max(found, key=lambda test: test["recall"]) for name, found in tests.items()}
    for name, test in best.items():
        print(f"{name}: Recall@{TOP} {test['recall']:.4f}, NDCG@{TOP} {test['ndcg']:.4f}")
    return {"best": best, "tests": tests}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiment."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="with train.txt and test.txt")
    parser.add_argument(
        "--precision", choices=("bin", "fp32"), default="bin", help="fp32: the float model alone"
    )
    parser.add_argument("--dim", type=int, default=1024, help="bits of a code")
    parser.add_argument("--teacher-dim", type=int, default=128, help="of the float model")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--temperature", type=float, default=0.1, help="cosines are divided by it")
    parser.add_argument("--users", type=int, default=2048, help="users of a step")
    parser.add_argument("--steps", type=int, default=2000, help="most steps of either model")
    parser.add_argument("--seconds", type=float, default=math.inf, help="most of either model")
    parser.add_argument("--every", type=int, default=100, help="steps between tests")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", type=Path, help="JSON record")
    options = parser.parse_args(argv)
    data = read(options.folder)
    result = train(data, options)
    if options.output is not None:
        left_out = ("folder", "output", "seconds")
        plain = {name: value for name, value in vars(options).items() if name not in left_out}
        sizes = {"users": data.num_users, "items": data.num_items, "pairs": data.train.size(1)}
        record = {"environment": environment(ROOT), "options": plain, "data": sizes, **result}
        write_json(options.output, record)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
