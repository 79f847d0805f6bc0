"""What whole frozen models are set against: PyG's models in every form, and emulated Bi-GCN."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.typing import WITH_TORCH_SPARSE

from bitgnn.bench.models_tasks import SEED, NodeTask
from bitgnn.bench.pyg import PyGGCN, graph_forms
from bitgnn.quantize import sgn

__all__ = [
    "Peer",
    "PyGGraphSAINT",
    "fp32_forwards",
    "peers",
    "published_bi_gcn",
    "pyg_model",
    "time_limit",
]

FREE_MEMORY_SHARE = 0.7
"""Part of the free memory that messages of edges may take."""
COMPILE_SECONDS = 60.0


class PyGGraphSAINT(nn.Module):
    """PyG's ``GraphConv`` twice and a linear map of both outputs, as ``bitgnn.models.GraphSAINT``.

    Args:
        in_channels: features of a node.
        hidden_channels: width of both layers.
        out_channels: classes.
        relu: whether there are ReLUs.
    """

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, relu: bool = True
    ) -> None:
        super().__init__()
        self.activation = nn.ReLU() if relu else nn.Identity()
        sizes = (in_channels, hidden_channels)
        self.convs = nn.ModuleList(
            torch_geometric.nn.GraphConv(size, hidden_channels, aggr="mean") for size in sizes
        )
        self.lin = nn.Linear(2 * hidden_channels, out_channels)

    def forward(self, x: Tensor, graph: Any) -> Tensor:
        """Class scores ``[N, C]``."""
        first = self.activation(self.convs[0](x, graph))
        second = self.activation(self.convs[1](first, graph))
        scores: Tensor = self.lin(torch.cat([first, second], dim=-1))
        return scores


def pyg_model(kind: str, task: NodeTask, relu: bool = True) -> nn.Module:
    """PyG's float model of a kind for a task, in evaluation mode on the task's device.

    Args:
        kind: one of :data:`bitgnn.bench.models_tasks.MODELS`.
        task: graph and features.
        relu: whether ReLUs stand behind hidden layers.
    """
    torch.manual_seed(SEED)
    sizes = (task.x.size(1), task.hidden_channels(kind), task.num_classes)
    if kind == "GCN":
        model: nn.Module = PyGGCN(sizes, relu=relu)
    elif kind == "GraphSAGE":
        act = "relu" if relu else None
        model = torch_geometric.nn.GraphSAGE(sizes[0], sizes[1], 2, sizes[2], act=act)
    else:
        model = PyGGraphSAINT(*sizes, relu=relu)
    return model.to(task.x.device).eval()


class _SignLinear(nn.Module):
    """Bi-GCN's linear map in floats: signs of rows and of weights, each with its mean magnitude."""

    def __init__(self, linear: Any) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """``[N, K]`` floats to ``[N, M]``."""
        scale = self.weight.abs().mean(1)
        rows = x.abs().mean(1, keepdim=True)
        out = functional.linear(sgn(x), sgn(self.weight)) * (rows * scale)
        return out if self.bias is None else out + self.bias


class _Standardized(nn.Module):
    """Each feature standardised over the nodes in front of a model, as Bi-GCN does by batch norm.

    Args:
        model: what follows.
        x: features whose statistics are used.
    """

    def __init__(self, model: nn.Module, x: Tensor) -> None:
        super().__init__()
        self.model = model
        self.norm = nn.BatchNorm1d(x.size(1), affine=False, device=x.device)
        self.norm.running_mean, self.norm.running_var = x.mean(0), x.var(0)
        self.eval()

    def forward(self, x: Tensor, graph: Any) -> Tensor:
        """Class scores ``[N, C]``."""
        scores: Tensor = self.model(self.norm(x), graph)
        return scores


def published_bi_gcn(kind: str, task: NodeTask) -> nn.Module:
    """PyG's model with the linear maps of its layers as Bi-GCN computes them, in floats.

    No ReLU stands between the layers: every sign behind one would be +1.

    Args:
        kind: one of :data:`bitgnn.bench.models_tasks.MODELS`.
        task: graph and features.
    """
    model = pyg_model(kind, task, relu=False)
    for layer in model.modules():
        if isinstance(layer, torch_geometric.nn.MessagePassing):
            for name, child in list(layer.named_children()):
                if isinstance(child, torch_geometric.nn.Linear):
                    setattr(layer, name, _SignLinear(child))
    return _Standardized(model, task.x)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Ends what runs inside after some seconds; only in the main thread.

    Raises:
        TimeoutError: it took longer.
    """

    def stop(number: int, frame: Any) -> None:
        raise TimeoutError(f"took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@dataclass(frozen=True)
class Arithmetic:
    """How a peer computes.

    Attributes:
        name: shown in tables.
        dtype: of weights, features and values of the graph.
        tf32: products of float32 matrices may use TF32.
    """

    name: str
    dtype: torch.dtype
    tf32: bool = False


FP32 = Arithmetic("fp32", torch.float32)
TF32 = Arithmetic("TF32", torch.float32, tf32=True)
HALVES = (Arithmetic("fp16", torch.float16), Arithmetic("bf16", torch.bfloat16))


@dataclass(frozen=True)
class Peer:
    """A contender that is not ours.

    Attributes:
        family: ``"PyG"`` or ``"Bi-GCN emulated"``.
        name: form of the graph and arithmetic.
        make: builds it; returns the forward and everything that it keeps.
        missing: why it cannot be measured here, None where it can.
    """

    family: str
    name: str
    make: Callable[[], tuple[Callable[[], Tensor], tuple[Any, ...]]] | None
    missing: str | None = None


def peers(kind: str, task: NodeTask) -> Iterator[Peer]:
    """Every form of PyG's model and of Bi-GCN emulated in PyG, built one at a time when asked.

    Args:
        kind: one of :data:`bitgnn.bench.models_tasks.MODELS`.
        task: graph and features.
    """
    on_cuda = task.x.is_cuda
    plain = (FP32, TF32) if on_cuda else (FP32,)
    forms: dict[str, Any] = dict(graph_forms(task.edge_index, task.num_nodes))
    missing = _messages_too_large(kind, task)
    for name, graph in forms.items():
        for arithmetic in (*plain, *HALVES):
            yield _peer(kind, task, name, graph, arithmetic, missing)
    for arithmetic in plain:
        yield _peer(kind, task, "torch CSR int32", forms["torch CSR"], arithmetic, None)
    if not WITH_TORCH_SPARSE:
        for family in ("PyG", "Bi-GCN emulated"):
            yield Peer(family, "SparseTensor", None, "torch-sparse is not installed")
    yield _compiled(kind, task, plain[-1], missing)
    for name, graph in forms.items():
        for arithmetic in plain:
            yield _peer(kind, task, name, graph, arithmetic, missing, published=True)


def fp32_forwards(kind: str, task: NodeTask) -> dict[str, Callable[[], Tensor]]:
    """PyG's forward for every form of the graph that is installed, caches already filled."""
    found = {}
    for name, graph in graph_forms(task.edge_index, task.num_nodes).items():
        forward = _make(kind, task, name, graph, FP32, published=False)[0]
        forward()
        found[f"PyG {name}"] = forward
    return found


def _peer(
    kind: str,
    task: NodeTask,
    form: str,
    graph: Any,
    arithmetic: Arithmetic,
    missing: str | None,
    *,
    published: bool = False,
) -> Peer:
    make = partial(_make, kind, task, form, graph, arithmetic, published)
    reason = missing if form == "edge_index" else None
    family = "Bi-GCN emulated" if published else "PyG"
    return Peer(family, f"{form} {arithmetic.name}", None if reason else make, reason)


def _compiled(kind: str, task: NodeTask, arithmetic: Arithmetic, missing: str | None) -> Peer:
    """torch.compile of one model in one form: each takes its compiler many seconds."""
    if kind != "GCN":
        missing = "torch.compile is measured on GCN alone"
    name = f"torch.compile, edge_index {arithmetic.name}"

    def make() -> tuple[Callable[[], Tensor], tuple[Any, ...]]:
        model = pyg_model(kind, task)
        with torch.no_grad():
            model(task.x, task.edge_index)  # fills the caches
        torch.compiler.reset()
        compiled = torch.compile(model, dynamic=False)
        call = partial(_forward, compiled, task.x, task.edge_index, arithmetic.tf32)
        with time_limit(COMPILE_SECONDS):
            call()
        return call, (model, task.x)

    return Peer("PyG", name, None if missing else make, missing)


def _make(
    kind: str, task: NodeTask, form: str, graph: Any, arithmetic: Arithmetic, published: bool
) -> tuple[Callable[[], Tensor], tuple[Any, ...]]:
    model = published_bi_gcn(kind, task) if published else pyg_model(kind, task)
    change = partial(_with_values, dtype=arithmetic.dtype, narrow=form.endswith("int32"))
    if kind == "GCN":
        # Normalised in float32: sums of degrees in 16 bits would be wrong. Not in inference mode:
        # parts of a sparse tensor made there cannot be looked at.
        with torch.no_grad():
            model(task.x, graph)
        for layer in model.modules():
            if isinstance(layer, torch_geometric.nn.GCNConv):
                if layer._cached_adj_t is not None:
                    layer._cached_adj_t = change(layer._cached_adj_t)
                if layer._cached_edge_index is not None:
                    kept, weight = layer._cached_edge_index
                    weight = None if weight is None else weight.to(arithmetic.dtype)
                    layer._cached_edge_index = (change(kept), weight)
    else:
        graph = change(graph)
    model = model.to(arithmetic.dtype)
    x = task.x.to(arithmetic.dtype)
    # A cached graph takes the place of the given one, which then need not be kept.
    return partial(_forward, model, x, graph, arithmetic.tf32), (model, x) + (
        () if kind == "GCN" else (graph,)
    )


@torch.inference_mode()
def _forward(model: Callable[..., Tensor], x: Tensor, graph: Any, tf32: bool) -> Tensor:
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        return model(x, graph)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def _with_values(graph: Any, dtype: torch.dtype, narrow: bool) -> Any:
    """The graph with values in ``dtype`` and, where asked, indices of 32 bits."""
    if isinstance(graph, Tensor):
        if graph.layout != torch.sparse_csr:
            return graph
        index = torch.int32 if narrow else torch.int64
        return torch.sparse_csr_tensor(
            graph.crow_indices().to(index),
            graph.col_indices().to(index),
            graph.values().to(dtype),
            graph.shape,
            check_invariants=False,
        )
    value = graph.storage.value()
    return graph if value is None else graph.set_value(value.to(dtype), layout="coo")


def _messages_too_large(kind: str, task: NodeTask) -> str | None:
    """Why a message for each edge cannot be held, None where it can."""
    hidden = task.hidden_channels(kind)
    # GCNConv gathers what it has transformed and weighs it, two tables; the others gather inputs.
    width = 2 * max(hidden, task.num_classes) if kind == "GCN" else max(task.x.size(1), hidden)
    needed = task.num_edges * width * task.x.element_size()
    if task.x.is_cuda:
        free = torch.cuda.mem_get_info(task.x.device)[0]
    else:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed <= FREE_MEMORY_SHARE * free:
        return None
    return f"messages of all edges take {needed / 2**30:.0f} GiB"
