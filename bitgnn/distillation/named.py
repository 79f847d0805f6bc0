"""Shared parts of the commands: graphs and float models by name, distillation that Ctrl-C stops."""

from __future__ import annotations

import inspect
import re
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GraphConv, GraphSAGE
from torch_geometric.nn.models.basic_gnn import BasicGNN

from bitgnn import models
from bitgnn._files import FileError, read_regular
from bitgnn._interpreter import imported, is_import_path
from bitgnn.data import load, read_graph
from bitgnn.data.own_graphs import is_own_graph
from bitgnn.distillation.checkpoint import check_state, seeded
from bitgnn.distillation.result import Distilled
from bitgnn.distillation.teaching import distill
from bitgnn.models.base import NodeModel

STATE_BYTES = 1 << 36
"""Largest file of a model's weights."""
HIDDEN, LAYERS = 64, 2
DROPOUT = 0.5
"""Of models that go by name (Kipf and Welling 2017)."""


class GraphConvNet(BasicGNN):
    """Layers of PyG's ``GraphConv``, as its ``GCN`` is of ``GCNConv``."""

    supports_edge_weight = True
    supports_edge_attr = False

    def init_conv(self, in_channels: Any, out_channels: int, **kwargs: Any) -> GraphConv:
        """A layer of the stack."""
        return GraphConv(in_channels, out_channels, **kwargs)


PYG: dict[str, type[BasicGNN]] = {"gcn": GCN, "sage": GraphSAGE, "graphconv": GraphConvNet}
_TIME = re.compile(r"\s*(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>[a-z]*)\s*", re.IGNORECASE)
_UNITS = {"": 1.0, "ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
OWN = {"indgcn": partial(models.GCN, inductive=True)}
"""Forms of this package's models that have names of their own."""


def parse_seconds(text: str | float) -> float:
    """Read ``"60s"``, ``"5 min"``, ``"1h"`` or a number of seconds above 0."""
    match = _TIME.fullmatch(text) if isinstance(text, str) else None
    seconds = text if isinstance(text, int | float) else 0.0
    if match is not None:
        seconds = float(match["number"]) * _UNITS.get(match["unit"].lower(), 0.0)
    if not 0 < seconds < float("inf"):
        raise ValueError(f"budget must be a time such as '60s' or '5 min', got {text!r}")
    return float(seconds)


def named_device(name: str) -> torch.device:
    """The device of a name: ``cpu``, ``cuda``, or ``auto`` (CUDA where there is a device)."""
    if name not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device must be 'auto', 'cpu' or 'cuda', got {name!r}")
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise ValueError("device 'cuda': torch finds no CUDA device; use 'cpu' or 'auto'")
    return torch.device("cuda" if has_cuda and name != "cpu" else "cpu")


def named_graph(name: str, root: str | None, seed: int) -> Data:
    """Load a data set by name or a graph of the user's own, split with the seed.

    Only one of the user's own may have labels of other kinds than classes. ``root`` is the folder
    of the data sets; None takes ``BITGNN_DATA``, else ``./data``.
    """
    source = read_graph if is_own_graph(name) else load
    return source(name, root, seed=seed)


def sizes(title: str, data: Data) -> str:
    """A graph in one line."""
    nodes, features = data.x.shape
    return f"{title}: {nodes} nodes, {data.edge_index.size(1)} edges, {features} features"


def distilled(*arguments: Any, **named: Any) -> Distilled:
    """Call :func:`bitgnn.distill`; Ctrl-C always raises, and the same call goes on."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="distill: stopped by Ctrl-C")
        result = distill(*arguments, **named)
    if result.interrupted:
        raise KeyboardInterrupt
    return result


@dataclass(frozen=True)
class NamedModel:
    """A float model as the command line names it: of PyG, of this package, or an import path.

    ``hidden`` and ``layers`` are the width of hidden layers and the number of layers, ``state`` a
    file of safetensors with trained weights.
    """

    model: str = "gcn"
    hidden: int | None = None
    layers: int | None = None
    state: Path | None = None

    @property
    def is_trained(self) -> bool | None:
        """True or False as distill() takes ``trained``; None if the scores decide."""
        return None if self.state is not None or is_import_path(self.model) else False

    def kind(self) -> Any:
        """What makes the model; a wrong name or option is refused before any data are read."""
        kind: Any = {**PYG, **OWN}.get(self.model) or getattr(models, self.model, None)
        if is_import_path(self.model):
            kind = imported(self.model)
        elif self.model not in (*PYG, *OWN) and not _is_node_model(kind):
            own = [key for key in models.__all__ if _is_node_model(getattr(models, key))]
            raise ValueError(
                f"model must be one of {[*PYG, *OWN, *own]} or an import path such as "
                f"package.module:Name, got {self.model!r}"
            )
        taken = self._parameters(kind)
        for option, size in (("hidden", "hidden_channels"), ("layers", "num_layers")):
            if getattr(self, option) is not None and size not in taken:
                raise ValueError(f"{self.model} takes no {size}, leave --{option} out")
        if self.state is not None and not self.state.is_file():
            raise FileError(f"{self.state}: cannot be read (no such file)")
        return kind

    def make(self, data: Data, seed: int, device: torch.device) -> nn.Module:
        """Make the model for a graph's numbers of features and classes, with fresh weights."""
        kind = self.kind()
        with seeded(seed, device):
            model = self._made(kind, data)
        if not isinstance(model, nn.Module):
            raise ValueError(
                f"{self.model}: must give a torch.nn.Module, got {type(model).__name__}"
            )
        if self.state is not None:
            state = _read_state(self.state)
            check_state(model, state, self.state)
            model.load_state_dict(state)
        return model.to(device)

    def _parameters(self, kind: Any) -> dict[str, Any]:
        """Parameters of what makes the model; a ready-made one has none."""
        try:
            return {} if isinstance(kind, nn.Module) else dict(inspect.signature(kind).parameters)
        except (TypeError, ValueError):
            raise ValueError(f"{self.model}: must be a class, a function or a model") from None

    def _made(self, kind: Any, data: Data) -> Any:
        """Call ``kind`` with the sizes in its signature; a ready-made model stays."""
        classes = data.y.size(1) if data.y.dim() == 2 else 1
        if not data.y.is_floating_point():
            classes = int(data.y.max()) + 1
        sizes: dict[str, Any] = {
            "in_channels": data.x.size(1),
            "hidden_channels": self.hidden or HIDDEN,
            "out_channels": classes,
            "num_layers": self.layers or LAYERS,
        }
        if isinstance(kind, nn.Module):
            return kind
        parameters = self._parameters(kind)
        if not is_import_path(self.model):
            sizes["dropout"] = DROPOUT
        try:
            return kind(**{size: value for size, value in sizes.items() if size in parameters})
        except Exception as error:  # it may do anything
            raise ValueError(
                f"{self.model} cannot be made of {', '.join(sizes)} ({type(error).__name__}: "
                f"{error}); name a function that takes no more than these and gives the model"
            ) from error


def _is_node_model(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, NodeModel)


def _read_state(path: Path) -> dict[str, Any]:
    try:
        return safetensors.torch.load(read_regular(path, limit=STATE_BYTES))
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from error
    except safetensors.SafetensorError as error:
        raise FileError(f"{path}: is no file of safetensors ({error})") from error
