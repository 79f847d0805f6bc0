"""Times a training step of binary layers against PyG's on Cora: a JSON record."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor, nn

import bitgnn.nn
from bench.command import exits_with_status, parse, run_benchmark
from bench.operators.case import OperatorCase, describe
from bench.tables.operators import cases_table
from bench.tasks import HIDDEN, QUICK_GRAPH, SEED, NodeTask, load_task
from bitgnn.bits import BitAdjacency
from bitgnn.measure.pyg import graph_forms
from bitgnn.quantize import sgn
from bitgnn.quantize.int8_linear import MOST, UNITS, column_factors

GOAL_GRAPH = "Cora"
LAYERS = ("GCNConv", "SAGEConv", "GraphConv")
PRECISIONS = ("full", "bin", "FBF+FBF", "FBB+BBF")
# A binary layer may take at most 1.5 times as long as the float one.
GOAL = 1 / 1.5

Step = Callable[[], None]


def _options(name: str) -> dict[str, Any]:
    """Let GCNConv keep its normalised graph, without which a plain edge index is slow."""
    return {"cached": True} if name == "GCNConv" else {}


def _step(layer: nn.Module, x: Tensor, graph: Any, grad: Tensor) -> None:
    """One forward and backward pass; the features need no gradient, as in a first layer."""
    layer.zero_grad(set_to_none=True)
    layer(x, graph).backward(grad)


def _adjacency(name: str, task: NodeTask) -> BitAdjacency:
    """The graph as each of the layers prepares it."""
    normalize = {"GCNConv": "sym", "SAGEConv": "mean"}.get(name)
    return BitAdjacency.from_edge_index(
        task.edge_index, task.x.size(0), normalize=normalize, add_self_loops=name == "GCNConv"
    )


def _baselines(name: str, task: NodeTask, grad: Tensor) -> dict[str, Step]:
    """PyG's layer over every form of the graph that is installed."""
    found: dict[str, Step] = {}
    for form, graph in graph_forms(task.edge_index, task.x.size(0)).items():
        torch.manual_seed(SEED)
        layer = getattr(torch_geometric.nn, name)(task.x.size(1), HIDDEN, **_options(name))
        found[f"PyG {form}"] = partial(_step, layer, task.x, graph, grad)
    return found


@torch.no_grad()
def _products(layer: Any, linears: Sequence[Any], x: Tensor) -> list[Tensor]:
    """The dense products of a layer by themselves, in plain torch."""
    signs = [sgn(linear.weight).t() for linear in linears]
    bits = layer.input_bits
    if bits is not None:
        gains = [1.0 if g is None else g for g in (layer.output_gain, layer.root_gain)]
        if bits.kind == "rows":
            centre, inverse = bits.scales()
            codes = ((x - centre) * inverse).round().clamp(-MOST, MOST)
            found = []
            for gain, linear in zip(gains, linears, strict=False):
                weight = linear.weight * column_factors(inverse)
                step = weight.abs().amax(1, keepdim=True) / MOST
                weight = (weight / step).round()
                found.append(gain / UNITS * step.t() * (codes @ weight.t()))
            return found
        seen = (x > 0).float() + bits.bit_offset
        return [
            bits.unit * gain * (seen @ weight) for gain, weight in zip(gains, signs, strict=False)
        ]
    alpha = x.abs().mean(1, keepdim=True)
    products = [
        (alpha * linear.weight.abs().mean(1)) * (sgn(x) @ weight)
        for linear, weight in zip(linears, signs, strict=True)
    ]
    if layer.letters.bmm[2] == "B":
        products[0] = sgn(sgn(x) @ signs[0])
    return products


def _is_right(layer: Any, name: str, task: NodeTask, graph: Any) -> bool:
    """True if the layer equals its formula in plain torch and its gradients are finite."""
    layer(task.x, graph)  # Layers of named precision look at their input in it.
    linears = [m for m in layer.children() if isinstance(m, torch_geometric.nn.Linear)]
    products = _products(layer, linears, task.x)
    pattern, letters = _adjacency(name, task), layer.letters
    is_summed = letters.bmm[2] == "B" or letters.order == "aggregate_first"
    col = None if is_summed else pattern.col_scale
    matrix = BitAdjacency(pattern.rowptr, pattern.indices, pattern.num_cols, pattern.row_scale, col)
    expected = matrix.to_torch_csr() @ products[0]
    bias = layer.bias if name == "GCNConv" else linears[0].bias
    expected = expected + bias + sum(products[1:])
    layer.eval()
    with torch.no_grad():
        found = layer(task.x, graph)
    layer.train()
    layer(task.x, graph).sum().backward()
    gradients = [p.grad for p in layer.parameters() if p.grad is not None]
    finite = all(bool(torch.isfinite(grad).all()) for grad in gradients)
    finite = finite and all(m.weight.grad is not None for m in linears)
    layer.zero_grad(set_to_none=True)
    return finite and torch.allclose(found, expected, rtol=1e-4, atol=1e-4)


def cases(task: NodeTask) -> Iterator[OperatorCase]:
    """Every layer and precision, over the forms in which a graph is held in training."""
    nodes, features = task.x.shape
    generator = torch.Generator().manual_seed(SEED)
    grad = torch.randn(nodes, HIDDEN, generator=generator)
    for name in LAYERS:
        graphs = {"edge_index": task.edge_index, "BitAdjacency": _adjacency(name, task)}
        baselines = _baselines(name, task, grad)
        for precision, (form, graph) in itertools.product(PRECISIONS, graphs.items()):
            torch.manual_seed(SEED)
            layer = getattr(bitgnn.nn, name)(
                features, HIDDEN, precision=precision, **_options(name)
            )
            yield OperatorCase(
                f"{name}, {task.name}, {features} → {HIDDEN}",
                f"{precision}, {form}",
                partial(_step, layer, task.x, graph, grad),
                baselines,
                target=GOAL if task.name == GOAL_GRAPH else None,
                check=partial(_is_right, layer, name, task, graph),
                details={"nodes": nodes, "edges": task.edge_index.size(1)},
            )


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the layer benchmark; the exit status."""
    names = {"cpu": "layers"}
    arguments = parse("Times training steps of binary layers against PyG's.", names, argv)
    key = QUICK_GRAPH if arguments.quick else GOAL_GRAPH.lower()
    todo = cases(load_task(key, "cpu", arguments.data_root))
    return run_benchmark(arguments, todo, cases_table, line=describe)


if __name__ == "__main__":
    raise SystemExit(main())
