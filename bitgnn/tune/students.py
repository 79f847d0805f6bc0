"""Students of one teacher, each distilled once, and the teacher as the baseline beside them."""

from __future__ import annotations

import copy
import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor, nn
from torch_geometric.utils import to_torch_csr_tensor

from bitgnn._files import FileError
from bitgnn._plain import read_json
from bitgnn.convert import ModelShape, Plan
from bitgnn.convert.network.trace import evaluating
from bitgnn.distillation.fitting import BUDGET_SPENT
from bitgnn.distillation.named import distilled
from bitgnn.measure.memory import cuda_peak_allocation, peak_allocation, stored_bytes
from bitgnn.measure.pyg import graph_forms
from bitgnn.measure.report import write_json
from bitgnn.measure.timing import Clock
from bitgnn.tune.space import Accuracy, Candidate, Space
from bitgnn.tune.workload import Score, Workload

LONGEST = 120
"""Characters of a folder's name, beyond which letters are told by a checksum."""
PYG = "PyG fp32"
MESSAGE_LIMIT = 2 * 2**30
"""Bytes of messages beyond which graphs are not given as an edge index, unless it is the only
form."""
FLOAT_BYTES = 4


@dataclass(frozen=True, eq=False)
class Student:
    """A binary model that was distilled, in its workload.

    Attributes:
        epochs: trained.
        seconds: of its training.
    """

    workload: Workload
    epochs: int
    seconds: float

    @property
    def model(self) -> nn.Module:
        """In the letters it was trained in, in evaluation."""
        return self.workload.model

    def scored(self, plan: Plan) -> tuple[Score, Candidate]:
        """A plan in its own letters: the score of the frozen model, and the model ready to run."""
        return self._accuracy.of(plan), self._accuracy.space.make(plan)

    @cached_property
    def _accuracy(self) -> Accuracy:
        return Accuracy(Space.from_workload(self.workload))


@dataclass
class Students:
    """Distills students of the model in ``workload``, the teacher first where it is not trained.

    ``folder`` is for checkpoints and logs: a call with the same arguments goes on from there. The
    other fields are as distill() takes them.
    """

    workload: Workload
    data: Any
    folder: Path
    epochs: int | None = None
    seed: int = 0
    trained: bool | None = None
    teacher: nn.Module | None = None
    """Trained; None before the first student."""
    doubt: str | None = None
    """Why the teacher is worse than it should be; None where it is not."""
    taught: int = field(default=0, init=False)

    def teach(self, widen: float, plan: Plan | None = None, budget: float | None = None) -> Student:
        """Distill a student with ``widen`` times the hidden channels in a plan's letters, or "bin".

        ``budget`` is seconds; on Ctrl-C the same call goes on.
        """
        log = self.folder / f"x{widen:g}-{'bin' if plan is None else _title(plan)}"
        with warnings.catch_warnings():
            if self.teacher is not None:  # the first student's warnings say what is wrong with all
                warnings.simplefilter("ignore", UserWarning)
            found = distilled(
                self.workload.model if self.teacher is None else self.teacher,
                self.data, "bin" if plan is None else plan,
                widen=None if widen == 1 else widen, epochs=self.epochs, seed=self.seed, log=log,
                budget=_first_budget(log, budget), trained=self.teacher is not None or self.trained,
            )  # fmt: skip
        if self.teacher is None:
            self.teacher = found.teacher
            if found.ended.get("teacher") == BUDGET_SPENT:
                epochs = len(found.teacher_history)
                self.doubt = f"the budget ended the float model's training at epoch {epochs}"
        self.taught += 1
        workload = replace(self.workload, model=found.model, widen=widen)
        return Student(workload, len(found.history), found.seconds)


def _title(plan: Plan) -> str:
    """A plan's letters as the name of a folder."""
    letters = "_".join(plan.letters.values()).replace("+", "-")
    return letters if len(letters) <= LONGEST else hashlib.sha256(letters.encode()).hexdigest()


def _first_budget(log: Path, seconds: float | None) -> float | None:
    """Seconds that the first call gave a student, kept for those that go on.

    With more of them a teacher would be trained on, and no longer be what its students learnt from.
    """
    file = log / "budget.json"
    if not file.exists():
        write_json(file, {"seconds": seconds})
    kept = read_json(file)
    value = kept.get("seconds") if isinstance(kept, dict) else ""
    if value is not None and not isinstance(value, int | float):
        raise FileError(f"{file}: is damaged; delete it to go on with another budget")
    return value


@dataclass(frozen=True)
class Baseline:
    """A float model with its fastest form of the graph, which its name says.

    Attributes:
        run: one forward.
        score: of its logits.
        memory: bytes of weights, features and graph, and of the allocator's peak on top.
    """

    name: str
    run: Callable[[], Tensor]
    score: Score
    memory: float


def baseline_of(workload: Workload) -> Baseline:
    """The float model of a workload, with the form of the graph that is fastest."""
    model = copy.deepcopy(workload.model).eval()  # it keeps graphs
    clock = Clock(workload.device.type)

    def forward(graph: Any) -> Callable[[], Tensor]:
        """A forward in which PyG's layers cache the normalised graph."""
        for layer in model.modules():
            if isinstance(layer, torch_geometric.nn.GCNConv):
                layer.cached = layer.normalize
                layer._cached_edge_index = layer._cached_adj_t = None
        return partial(_logits, model, workload.x, graph)

    found = []
    for form, graph in _forms(workload).items():
        run = forward(graph)
        run()
        found.append((clock.elapsed(run), form, graph))
    _, form, graph = min(found, key=lambda entry: entry[0])
    run = forward(graph)
    score = workload.scores(run())
    peak = cuda_peak_allocation if workload.x.is_cuda else peak_allocation
    memory = stored_bytes(model, workload.x, graph) + peak(run)
    return Baseline(f"{PYG} ({form})", run, score, float(memory))


@torch.no_grad()
def _logits(model: nn.Module, x: Tensor, graph: Any) -> Tensor:
    """``[N, C]`` logits of a model in evaluation; its mode is restored."""
    with evaluating(model):
        logits: Tensor = model(x, graph)
    return logits


def _forms(workload: Workload) -> dict[str, Any]:
    """The graph by the name of its form."""
    graph, nodes = workload.edge_index, workload.num_nodes
    if not isinstance(graph, Tensor) or graph.layout != torch.strided:
        return {"as given": graph}
    if workload.edge_weight is not None:
        csr = to_torch_csr_tensor(graph.flip(0), workload.edge_weight, (nodes, nodes))
        return {"torch CSR": csr}
    forms = graph_forms(graph, nodes)
    shapes = ModelShape.of(workload.model).layers
    widest = max(max(shape.in_channels, shape.out_channels) for shape in shapes)
    if graph.size(1) * widest * FLOAT_BYTES > MESSAGE_LIMIT:
        forms.pop("edge_index")
    return forms
