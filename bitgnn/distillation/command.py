"""The command `bitgnn distill`: train a teacher where there is none, distill, write and report."""

from __future__ import annotations

import inspect
import json
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from rich.console import Console
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GraphConv, GraphSAGE
from torch_geometric.nn.models.basic_gnn import BasicGNN

from bitgnn import models
from bitgnn._files import FileError, read_regular, write_atomically
from bitgnn._import_path import imported, is_import_path
from bitgnn._plain import read_json
from bitgnn.data import load, read_graph
from bitgnn.data.own_graphs import is_own_graph
from bitgnn.distillation import distill
from bitgnn.distillation.result import Cost, Distilled
from bitgnn.inference import save
from bitgnn.measure.environment import environment
from bitgnn.measure.report import csv_text, write_json
from bitgnn.models.base import NodeModel
from bitgnn.train.checkpoint import load_state
from bitgnn.train.randomness import seeded
from bitgnn.train.store import OutputError, alone_in
from bitgnn.train.unit import RunOptions

__all__ = ["DistillCommand", "DistillInterrupted", "GraphConvNet", "run_distill"]

COMMAND_FILE, LOG, MODEL = "command.json", "log", "model"
STATE_BYTES = 1 << 36
"""Largest file of a teacher's weights."""
HIDDEN, LAYERS = 64, 2
DROPOUT = 0.5
"""Of models that go by name (Kipf and Welling 2017)."""


class DistillInterrupted(KeyboardInterrupt):
    """Distilling was stopped by Ctrl-C; the message says what was kept."""


class GraphConvNet(BasicGNN):
    """Layers of PyG's ``GraphConv``, as its ``GCN`` is of ``GCNConv``."""

    supports_edge_weight = True
    supports_edge_attr = False

    def init_conv(self, in_channels: Any, out_channels: int, **kwargs: Any) -> GraphConv:
        """A layer of the stack."""
        return GraphConv(in_channels, out_channels, **kwargs)


PYG: dict[str, type[BasicGNN]] = {"gcn": GCN, "sage": GraphSAGE, "graphconv": GraphConvNet}


@dataclass(frozen=True)
class DistillCommand:
    """What the command line says, in the words of ``bitgnn distill --help``."""

    data: str
    model: str = "gcn"
    hidden: int | None = None
    layers: int | None = None
    state: Path | None = None
    precision: str = "bin"
    widen: float | None = None
    epochs: int | None = None
    budget: float | None = None
    seed: int = 0
    device: str = "auto"
    output: Path = Path("bitgnn-distill")
    data_root: str | None = None


def run_distill(command: DistillCommand, console: Console) -> Distilled:
    """Distill a model on a graph, print the report and write the files.

    Args:
        command: what to do.
        console: where the report is printed.

    Returns:
        The result.

    Raises:
        DataError: the graph cannot be had.
        FileError: a file of the graph or of the weights is damaged or does not fit.
        DistillError: see :func:`bitgnn.distill`.
        OutputError: the output folder cannot be written, holds another distillation, or another
            process is at work in it.
        DistillInterrupted: stopped by Ctrl-C.
        ValueError: model, device or another option is wrong.
    """
    device = RunOptions(command.device).torch_device()
    data = _load(command)
    with seeded(command.seed, device):
        model = _model(command, data).to(device)
    with alone_in(command.output):
        _match(command)
        console.print(
            f"{data.name}: {data.x.size(0)} nodes, {data.edge_index.size(1)} edges, "
            f"{data.x.size(1)} features",
            highlight=False,
        )
        result = _distill(command, model, data)
        console.print(str(result), highlight=False, soft_wrap=True)
        costs = result.costs()
        console.print(result.cost_table(costs), highlight=False)
        written = _write(command, result, costs)
        console.print("Written: " + ", ".join(map(str, written)), soft_wrap=True)
    return result


def _load(command: DistillCommand) -> Data:
    """The graph; only one of the user's own may have labels of other kinds than classes."""
    source = read_graph if is_own_graph(command.data) else load
    return source(command.data, command.data_root, seed=command.seed)


def _model(command: DistillCommand, data: Data) -> nn.Module:
    name = command.model
    kind: Any = PYG.get(name) or getattr(models, name, None)
    if is_import_path(name):
        kind = imported(name)
    elif name not in PYG and not _is_node_model(kind):
        own = [key for key in models.__all__ if _is_node_model(getattr(models, key))]
        raise ValueError(
            f"model must be one of {[*PYG, *own]} or an import path such as package.module:Name, "
            f"got {name!r}"
        )
    model = _made(kind, command, data)
    if not isinstance(model, nn.Module):
        raise ValueError(f"{name}: must give a torch.nn.Module, got {type(model).__name__}")
    if command.state is not None:
        load_state(model, _state(command.state), str(command.state))
    return model


def _is_node_model(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, NodeModel)


def _made(kind: Any, command: DistillCommand, data: Data) -> Any:
    """A model made with those sizes that its signature names; one that is made already stays."""
    classes = data.y.size(1) if data.y.dim() == 2 else 1
    if not data.y.is_floating_point():
        classes = int(data.y.max()) + 1
    sizes: dict[str, Any] = {
        "in_channels": data.x.size(1),
        "hidden_channels": command.hidden or HIDDEN,
        "out_channels": classes,
        "num_layers": command.layers or LAYERS,
    }
    is_made = isinstance(kind, nn.Module)
    try:
        parameters = {} if is_made else dict(inspect.signature(kind).parameters)
    except (TypeError, ValueError):
        raise ValueError(f"{command.model}: must be a class, a function or a model") from None
    for option, size in (("hidden", "hidden_channels"), ("layers", "num_layers")):
        if getattr(command, option) is not None and size not in parameters:
            raise ValueError(f"{command.model} takes no {size}, leave --{option} out")
    if is_made:
        return kind
    if not is_import_path(command.model):
        sizes["dropout"] = DROPOUT
    try:
        return kind(**{size: value for size, value in sizes.items() if size in parameters})
    except Exception as error:  # it may do anything
        raise ValueError(
            f"{command.model} cannot be made of {', '.join(sizes)} ({type(error).__name__}: "
            f"{error}); name a function that takes no more than these and gives the model"
        ) from error


def _state(path: Path) -> dict[str, Any]:
    try:
        return safetensors.torch.load(read_regular(path, limit=STATE_BYTES))
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from error
    except safetensors.SafetensorError as error:
        raise FileError(f"{path}: is no file of safetensors ({error})") from error


def _match(command: DistillCommand) -> None:
    """Record the command, or refuse a folder that holds checkpoints of another one."""
    values = {key: v for key, v in asdict(command).items() if key not in ("device", "output")}
    wanted = json.loads(json.dumps(values, default=str))
    file = command.output / COMMAND_FILE
    if file.exists() and any((command.output / LOG).glob("*.checkpoint")):
        recorded = read_json(file)
        found = recorded if isinstance(recorded, dict) else {}
        different = [
            f"{key} {found.get(key)!r} there, {value!r} here"
            for key, value in wanted.items()
            if found.get(key) != value
        ]
        if different:
            raise OutputError(
                f"{command.output}: holds another distillation ({'; '.join(different)}); choose "
                "another --output or delete the folder"
            )
    write_json(file, wanted)


def _distill(command: DistillCommand, model: nn.Module, data: Data) -> Distilled:
    stopped = DistillInterrupted(
        f"stopped; checkpoints are kept in {command.output}, the same command goes on"
    )
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="distill: stopped by Ctrl-C")
            result = distill(
                model,
                data,
                command.precision,
                widen=command.widen,
                epochs=command.epochs,
                budget=command.budget,
                seed=command.seed,
                log=command.output / LOG,
            )
    except KeyboardInterrupt:
        raise stopped from None
    if result.interrupted:
        raise stopped
    return result


def _write(command: DistillCommand, result: Distilled, costs: dict[str, Cost]) -> list[Path]:
    """Write history, picture, report, weights of a teacher trained here, and the frozen model."""
    folder = command.output
    names = ("distill.csv", "distill.png", "distill.json", "teacher.safetensors")
    history, picture, report, teacher = (folder / name for name in names)
    written = [history, picture, report]
    header, rows = list(result.history[0]), [list(row.values()) for row in result.history]
    write_atomically(history, csv_text([header, *rows]).encode())
    write_atomically(picture, result.plot())
    write_json(report, _report(command, result, costs))
    if result.teacher_history:
        state = {key: t.cpu().contiguous() for key, t in result.teacher.state_dict().items()}
        write_atomically(teacher, safetensors.torch.save(state))
        written.append(teacher)
    return [*written, save(result.frozen, folder / MODEL)]


def _report(command: DistillCommand, result: Distilled, costs: dict[str, Cost]) -> dict[str, Any]:
    return {
        "data": command.data,
        "model": command.model,
        "precision": command.precision,
        "widen": command.widen,
        "seed": command.seed,
        "epochs": len(result.history),
        "teacher_epochs": len(result.teacher_history),
        "metric": result.metric,
        "scores": {"teacher": asdict(result.teacher_scores), "binary": asdict(result.scores)},
        "gap_points": result.gap,
        "gap_error_points": result.gap_error,
        "smoothing": result.smoothing,
        "seconds": {"student": result.seconds, "teacher": result.teacher_seconds},
        "costs": {name: asdict(cost) for name, cost in costs.items()},
        "environment": environment(),
    }
