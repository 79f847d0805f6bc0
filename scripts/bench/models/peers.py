"""Peers of whole frozen models: PyG's models in every form, and emulated Bi-GCN."""

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
from torch import Tensor
from torch_geometric.typing import WITH_TORCH_SPARSE

from bench.models.networks import published_bi_gcn, pyg_model
from bench.tasks import NodeTask
from bitgnn.measure.pyg import graph_forms

PYG, EMULATED = "PyG", "Bi-GCN emulated"
FREE_MEMORY_SHARE = 0.5
"""Part of the free memory that messages of edges may take."""
COMPILE_SECONDS = 60.0


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Ends what runs inside after some seconds; only in the main thread."""

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
    """Every form of PyG's model and of Bi-GCN emulated in PyG, built one at a time when asked."""
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
        for family in (PYG, EMULATED):
            yield Peer(family, "SparseTensor", None, "torch-sparse is not installed")
    yield _compiled(kind, task, plain[-1], missing)
    for name, graph in forms.items():
        for arithmetic in plain:
            yield _peer(kind, task, name, graph, arithmetic, missing, published=True)


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
    family = EMULATED if published else PYG
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
        call = partial(forward_of, compiled, task.x, task.edge_index, arithmetic.tf32)
        with time_limit(COMPILE_SECONDS):
            call()
        return call, (model, task.x)

    return Peer(PYG, name, None if missing else make, missing)


def _make(
    kind: str, task: NodeTask, form: str, graph: Any, arithmetic: Arithmetic, published: bool
) -> tuple[Callable[[], Tensor], tuple[Any, ...]]:
    model = published_bi_gcn(kind, task) if published else pyg_model(kind, task)
    change = partial(with_values, dtype=arithmetic.dtype, narrow=form.endswith("int32"))
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
    return partial(forward_of, model, x, graph, arithmetic.tf32), (model, x) + (
        () if kind == "GCN" else (graph,)
    )


@torch.inference_mode()
def forward_of(model: Callable[..., Tensor], x: Tensor, graph: Any, tf32: bool) -> Tensor:
    """Scores of a model, whose products of float32 matrices may use TF32."""
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        return model(x, graph)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def with_values(graph: Any, dtype: torch.dtype, narrow: bool) -> Any:
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
