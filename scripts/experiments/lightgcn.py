"""Trains LightGCN in bits on pairs of users and items, and measures Recall@20 and NDCG@20.

Run as: python scripts/experiments/lightgcn.py FOLDER

FOLDER holds ``train.txt`` and ``test.txt`` as the authors of LightGCN give them (Gowalla, Yelp2018,
Amazon-Book): a line a user, its number and those of its items. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.measure.report import environment, write_json
from bitgnn.models import LightGCN

ROOT = Path(__file__).parents[2]
TOP = 20
USERS_AT_ONCE = 1024


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
        table = None if frozen is not None else model.get_embedding(graph)
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


def loss_of(embedding: Tensor, pairs: Tensor, negatives: Tensor, bandwidth: float) -> Tensor:
    """Softmax loss of each pair's item among shared negative items."""
    user, item = embedding[pairs[0]], embedding[pairs[1]]
    positive = (user * item).sum(-1, keepdim=True)
    scores = torch.cat([positive, user @ embedding[negatives].T], 1) * bandwidth
    # A negative item that is the pair's own says nothing.
    scores[:, 1:].masked_fill_(pairs[1, :, None] == negatives, -math.inf)
    return -functional.log_softmax(scores, dim=1)[:, 0].mean()


def train(data: Interactions, options: argparse.Namespace) -> dict[str, Any]:
    """Train by Adam until time or steps are over; gives the ranking of each test."""
    device = options.device
    torch.manual_seed(options.seed)
    nodes = data.num_users + data.num_items
    model = LightGCN(
        nodes, options.dim, options.layers, precision=options.precision, normalize=False
    ).to(device)
    graph = data.graph(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    pairs = (data.train + torch.tensor([[0], [data.num_users]])).to(device)
    begin, tests = time.perf_counter(), []
    for step in range(1, options.steps + 1):
        chosen = torch.randint(pairs.size(1), (options.batch,), device=device)
        drawn = torch.randint(data.num_items, (options.negatives,), device=device)
        embedding = model.get_embedding(graph)
        loss = loss_of(embedding, pairs[:, chosen], drawn + data.num_users, options.bandwidth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seconds = time.perf_counter() - begin
        is_over = step == options.steps or seconds > options.seconds
        if step % options.every == 0 or is_over:
            recall, ndcg = ranking(model, graph, data)
            tests.append(
                {"step": step, "seconds": seconds, "loss": float(loss.detach()), "recall": recall,
                 "ndcg": ndcg}
            )  # fmt: skip
            print(f"step {step}, {seconds:.0f} s: loss {tests[-1]['loss']:.4f}, ", end="")
            print(f"Recall@{TOP} {recall:.4f}, NDCG@{TOP} {ndcg:.4f}", flush=True)
        if is_over:
            break
    return {"tests": tests, "recall": tests[-1]["recall"], "ndcg": tests[-1]["ndcg"]}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiment."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="with train.txt and test.txt")
    parser.add_argument("--precision", choices=("bin", "fp32"), default="bin")
    parser.add_argument("--dim", type=int, default=512, help="bits of a code")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--batch", type=int, default=8192, help="pairs of a step")
    parser.add_argument("--negatives", type=int, default=2048, help="items beside them")
    parser.add_argument("--bandwidth", type=float, default=1.0, help="factor of the scores")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=math.inf, help="end of the training")
    parser.add_argument("--every", type=int, default=1000, help="steps between tests")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", type=Path, help="JSON record")
    options = parser.parse_args(argv)
    data = read(options.folder)
    result = train(data, options)
    if options.output is not None:
        plain = {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items()}
        plain["seconds"] = None if math.isinf(options.seconds) else options.seconds
        plain.pop("folder"), plain.pop("output")
        sizes = {"users": data.num_users, "items": data.num_items, "pairs": data.train.size(1)}
        record = {"environment": environment(ROOT), "options": plain, "data": sizes, **result}
        write_json(options.output, record)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
