"""What deeper GCNs lose by each part of the binary form: norm, activations, weights, signs.

Plain torch in floats, one part after the other put in: the tutorial's loop, with its learning rate,
epochs, dropout and weight decay. Finished runs are kept in OUTPUT.jsonl and not done again.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
from kept_runs import mean_tests, run_and_keep, study_parser
from plain_loop import DROPOUT, EPOCHS, HIDDEN, fit, held
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.utils import add_self_loops, to_torch_csr_tensor

from bitgnn.nn.weight_decay import spare_from_decay
from bitgnn.quantize import binary_sign

GRAPHS = ("Cora", "CiteSeer", "Cora 60/20/20", "CiteSeer 60/20/20")
VARIANTS = {
    "float": (),
    "batch norm": ("norm",),
    "one-bit activations": ("bits",),
    "batch norm, one-bit activations": ("norm", "bits"),
    "and binary weights": ("norm", "bits", "weights"),
    "and signs of the first product": ("norm", "bits", "weights", "first sign"),
    "and signs of all products": ("norm", "bits", "weights", "signs"),
    "all of them, and shortcuts": ("norm", "bits", "weights", "signs", "shortcuts"),
    "all of them, four times as wide": ("norm", "bits", "weights", "signs", "wide"),
}
WIDER = 4
WINDOW = 4.0
"""Half-width of the straight-through window of an activation's bit, in root mean squares."""
GAIN_START, GAIN_SPEED = -2.0, 10.0
DECAY = 5e-4
SHORTCUT = 4.0
"""What halves count in a shortcut."""


class Sum(torch.autograd.Function):
    """A sparse matrix times a dense one, with the transposed matrix at hand."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, transposed: Tensor, x: Tensor) -> Tensor:
        """The product."""
        ctx.transposed = transposed
        return matrix @ x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor]:
        """The gradient of ``x`` alone."""
        return None, None, ctx.transposed @ grad


class ActivationBit(torch.autograd.Function):
    """-1/2 or +1/2; the gradient passes where the activation is not far from others'."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The bit of ``x > 0``."""
        ctx.save_for_backward(x.abs() <= WINDOW * x.square().mean().sqrt())
        return (x > 0).to(x.dtype) - 0.5

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Straight through."""
        return grad * ctx.saved_tensors[0]


class Graph:
    """Normalised adjacency and sparse features, both with their transposes."""

    def __init__(self, graph: dict[str, Tensor]) -> None:
        x, nodes = graph["x"], graph["x"].size(0)
        edges, _ = add_self_loops(graph["edges"], num_nodes=nodes)
        degree = torch.bincount(edges[1], minlength=nodes).float().rsqrt()
        weight = degree[edges[0]] * degree[edges[1]]
        self.adjacency = to_torch_csr_tensor(edges.flip(0), weight, (nodes, nodes))
        self.transposed = to_torch_csr_tensor(edges, weight, (nodes, nodes))
        self.entries = x.nonzero().t()
        self.values = x[self.entries[0], self.entries[1]]
        self.shape = x.shape

    def aggregate(self, x: Tensor) -> Tensor:
        """Sums of neighbours."""
        return Sum.apply(self.adjacency, self.transposed, x)

    def first_product(self, weight: Tensor, training: bool, pattern: bool) -> Tensor:
        """Dropped features, or their pattern, times ``weight``."""
        values = torch.ones_like(self.values) if pattern else self.values
        values = functional.dropout(values, DROPOUT, training)
        rows, columns = self.entries
        x = torch.sparse_coo_tensor(self.entries, values, self.shape, is_coalesced=True)
        transposed = to_torch_csr_tensor(
            torch.stack([columns, rows]), values, (self.shape[1], self.shape[0])
        )
        return Sum.apply(x.to_sparse_csr(), transposed, weight.t())


class Ablation(nn.Module):
    """The tutorial's GCN with some parts of the binary form."""

    def __init__(self, sizes: list[int], parts: tuple[str, ...]) -> None:
        super().__init__()
        self.parts = parts
        hidden = sizes[1:-1]
        width = WIDER if "wide" in parts else 1
        sizes = [sizes[0], *(width * size for size in hidden), sizes[-1]]
        self.weights = nn.ParameterList(torch.empty(b, a) for a, b in pairwise(sizes))
        for weight in self.weights:
            if "weights" in parts:
                nn.init.normal_(weight, std=1 / math.sqrt(weight.size(1)))
                spare_from_decay(weight)
            else:
                nn.init.xavier_uniform_(weight)
        self.biases = nn.ParameterList(torch.zeros(size) for size in sizes[1:])
        norms = sizes[1:-1] if "norm" in parts else []
        self.norms = nn.ModuleList(nn.BatchNorm1d(size) for size in norms)
        self.level = nn.Parameter(torch.zeros(1))

    def forward(self, graph: Graph) -> Tensor:
        """Scores of every node."""
        parts, x = self.parts, torch.empty(0)
        last = len(self.weights) - 1
        for number, weight in enumerate(self.weights):
            if "weights" in parts:
                weight = binary_sign(weight) / math.sqrt(weight.size(1))
            if number == 0:
                z = graph.first_product(weight, self.training, "bits" in parts)
            else:
                x = functional.dropout(x, DROPOUT, self.training)
                z = x @ weight.t()
            if number == last:
                if "weights" in parts:
                    z = z * (GAIN_SPEED * self.level + GAIN_START).exp()
                return graph.aggregate(z) + self.biases[number]
            z = self.norms[number](z) if "norm" in parts else z
            if "signs" in parts or ("first sign" in parts and number == 0):
                z = binary_sign(z)
            z = graph.aggregate(z) + self.biases[number]
            if "shortcuts" in parts and number > 0:
                z = z + SHORTCUT * x
            z = functional.relu(z)
            x = ActivationBit.apply(z) if "bits" in parts else z
        raise AssertionError("the last layer returns")


@lru_cache(maxsize=1)
def prepared(name: str, root: str | None) -> Graph:
    """The last graph asked for: a worker holds one at a time."""
    return Graph(held(name, root, "cpu"))


def run(job: tuple[dict[str, Any], str | None, str]) -> dict[str, Any]:
    """One training."""
    case, root, device = job
    torch.set_num_threads(1)
    data, graph = held(case["graph"], root, device), prepared(case["graph"], root)
    y, nodes = data["y"], data["train"]
    torch.manual_seed(case["seed"])
    sizes = [data["x"].size(1), *[HIDDEN] * (case["layers"] - 1), int(y.max()) + 1]
    model = Ablation(sizes, VARIANTS[case["variant"]])

    def loss() -> Tensor:
        return functional.cross_entropy(model(graph)[nodes], y[nodes])

    return {**case, "test": fit(model, data, DECAY, EPOCHS, loss, lambda: model(graph))[1]}


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean accuracy of each depth and variant by graph, and the mean gap to floats."""
    means = mean_tests(runs, ("layers", "variant"))
    rows = []
    for (layers, variant), graphs in means.items():
        reference = means.get((layers, "float"), {})
        gaps = [reference[name] - mean for name, mean in graphs.items() if name in reference]
        gap = statistics.mean(gaps or [math.nan])
        rows.append({"layers": layers, "variant": variant, "mean_gap": gap, "test": graphs})
    return rows


def cases(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every run."""
    for graph in arguments.graphs:
        for layers in arguments.layers:
            for variant in VARIANTS:
                for seed in range(arguments.seeds):
                    yield {"graph": graph, "layers": layers, "variant": variant, "seed": seed}


def main() -> int:
    """Entry point."""
    parser = study_parser(__doc__, "depth.json", GRAPHS)
    parser.add_argument("--layers", nargs="+", type=int, default=[2, 3, 4])
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    return run_and_keep(
        cases(arguments), run, summary, arguments.output, arguments.data, workers=arguments.workers
    )


if __name__ == "__main__":
    raise SystemExit(main())
