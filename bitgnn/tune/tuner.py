"""tune(): distills candidates one after the other, measures them in turns, and chooses."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GAE
from tqdm import tqdm

from bitgnn._checks import name_type
from bitgnn._files import FileError, alone_in
from bitgnn._plain import read_json
from bitgnn.convert.swap.graphs import own_letters
from bitgnn.distillation.fitting import BUDGET_SPENT
from bitgnn.distillation.graphs_and_links import has_links
from bitgnn.distillation.named import distilled, parse_seconds
from bitgnn.distillation.problems import Nodes
from bitgnn.distillation.result import Distilled
from bitgnn.measure.report import cpu_model, write_json
from bitgnn.measure.timing import measure_in_turns, noise
from bitgnn.tune.candidates import PRECISIONS, Candidate, Pins, candidates
from bitgnn.tune.forwards import Forward, float_forwards, frozen_forward
from bitgnn.tune.goal import Goal, Objective
from bitgnn.tune.result import LimitsMissed, Point, TuneResult

CONSTRAINTS = ("accuracy drop <= 1%",)
WIDTHS = (1.0, 2.0, 4.0)
"""Multiples of the hidden channels that are tried."""
CANDIDATES = "candidates"
"""Folder of their checkpoints in the output folder."""
BEGUN = "begun.json"
"""Of a candidate: the seconds its training was given, and whether it is over."""
ROUNDS = 15
"""Repeats of each measurement."""
TRAINED_BY = 0.75
"""Part of the budget that trainings may use up; the rest is for measuring and writing."""
LEAST_SECONDS = 1e-3
"""Enough for an epoch, since one that is begun is ended."""


def tune(
    model: nn.Module,
    data: Data,
    objective: Objective = "latency",
    constraints: str | Iterable[str] = CONSTRAINTS,
    *,
    precisions: str | Sequence[str] = PRECISIONS,
    pins: Pins | None = None,
    widen: float | Sequence[float] = WIDTHS,
    trained: bool | None = None,
    epochs: int | None = None,
    budget: str | float | None = None,
    seed: int = 0,
    output: str | Path | None = None,
) -> TuneResult:
    """Find the precision of each layer and the width that suit a float model and its graph.

    A loop over candidates: all combinations of ``precisions`` over the layers where there are at
    most 16, else one layer at a time with the others at the first of them, times ``widen``. Each
    one is distilled from the same teacher, see :func:`bitgnn.distill`, and frozen. All of them and
    the float model are measured in turns; features are packed before.

    Args:
        model: a model in floats, trained or not, unchanged, on the device where all happens; one
            that is not trained is trained first.
        data: graph with ``x``, ``edge_index``, ``train_mask`` and labels ``y`` of nodes, as
            :func:`bitgnn.distill` takes it.
        objective: ``"latency"``, ``"memory"`` or ``"accuracy"``.
        constraints: limits such as ``"latency <= 2 ms"``, ``"memory <= 10 MB"`` or
            ``"accuracy drop <= 1%"``, which counts from the float model's validation score.
        precisions: names or letters that every layer may take.
        pins: precisions that are settled, by layer name or place: ``{"conv1": "fp32", -1: "full"}``
            or ``["conv1=fp32"]``.
        widen: multiples of the hidden channels to try, or a single one.
        trained: whether ``model`` is trained; None looks at its scores.
        epochs: of each training; None for the rule of :func:`bitgnn.distill`.
        budget: time for all of it, such as ``"60s"`` or 60. Candidates that it leaves no time for
            are named in the result.
        seed: of all trainings.
        output: folder for the result's files, see :meth:`TuneResult.save`, and for the candidates'
            checkpoints: the same call goes on where it was stopped or killed.

    Returns:
        Every candidate, the Pareto front, and the best one.

    Raises:
        LimitsMissed: no candidate keeps every limit, or the budget was too short to train the float
            model. Its ``result`` holds everything that was measured, and the files are written.
        DistillError: nothing can be learnt from the data, the model cannot be widened, or the
            budget leaves no time for a candidate.
        CheckpointError: ``output`` holds candidates of something else.
        OutputError: ``output`` cannot be written, or another process is at work in it.
        KeyboardInterrupt: stopped by Ctrl-C; the message says what is kept in ``output``.
        TypeError: model or data is of a wrong type.
        ValueError: another argument is wrong.
        OSError: a file cannot be written.
    """
    begin = time.perf_counter()
    goal = Goal.read(objective, constraints)
    seconds = None if budget is None else parse_seconds(budget)
    widths = (widen,) if isinstance(widen, int | float) else tuple(dict.fromkeys(widen))
    problem = _problem(model, data, seed)
    waiting = candidates(model, problem, precisions, pins, sorted(widths))
    with ExitStack() as held:
        if output is None:
            folder = Path(held.enter_context(TemporaryDirectory()))
        else:
            folder = Path(output)
            held.enter_context(alone_in(folder))
        loop = _Loop(folder, model, data, problem, begin, seconds, trained, epochs, seed)
        try:
            loop.run(waiting)
            result = loop.result(goal)
        except KeyboardInterrupt:
            kept = f"stopped; {len(loop.done)} of {len(waiting)} candidates are distilled"
            on = "name an output folder to go on from there next time"
            if output is not None:
                on = f"they are kept in {folder}, the same call goes on from there"
            raise KeyboardInterrupt(f"{kept}; {on}") from None
        if output is not None:
            result.save(folder)
    if result.missed is not None:
        raise LimitsMissed(result)
    return result


def _problem(model: nn.Module, data: Any, seed: int) -> Nodes:
    """Check model and data before anything is trained."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"tune: model must be a torch.nn.Module, got {name_type(model)}")
    if not isinstance(data, Data):
        raise TypeError(f"tune: data must be a Data object of one graph, got {name_type(data)}")
    letters = own_letters(model)
    if set("BT") & set("".join(letters.values())):
        raise ValueError(f"tune: model must be in floats, got one with the letters {letters}")
    if not letters:
        raise ValueError(
            f"tune: model must have a layer to tune such as GCNConv, SAGEConv or GraphConv, "
            f"{type(model).__name__} has none"
        )
    if has_links(data) or isinstance(model, GAE):
        raise ValueError("tune: data must have labels of nodes, got a problem of links")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the first distillation says them
        return Nodes(data, model, None, None, seed)


@dataclass
class _Loop:
    """The loop of one call over its candidates, and what it has found so far."""

    folder: Path
    model: nn.Module
    data: Data
    problem: Nodes
    begin: float
    budget: float | None
    trained: bool | None
    epochs: int | None
    seed: int
    teacher: nn.Module | None = None
    doubt: str | None = None
    done: dict[Candidate, tuple[Distilled, Forward]] = field(default_factory=dict)
    left_out: list[Candidate] = field(default_factory=list)
    failed: dict[Candidate, str] = field(default_factory=dict)
    # Seconds of a candidate by width.
    took: dict[float, float] = field(default_factory=dict)

    @property
    def spent(self) -> float:
        """Seconds since the call began."""
        return time.perf_counter() - self.begin

    def run(self, waiting: Sequence[Candidate]) -> None:
        """Distill and freeze every candidate for which there is time."""
        for candidate in tqdm(waiting, desc="candidates", disable=None):
            place = self.folder / CANDIDATES / candidate.folder
            left = None if self.budget is None else TRAINED_BY * self.budget - self.spent
            is_late = left is not None and self._expected(candidate.widen) > left
            if is_late and self.teacher is not None and not _has_ended(place):
                self.left_out.append(candidate)
                continue
            try:
                self._take(candidate, place, left)
            except FileError:
                raise
            except (RuntimeError, ValueError) as error:
                if self.teacher is None:
                    raise
                lines = str(error).splitlines() or [""]
                self.failed[candidate] = f"{type(error).__name__}: {lines[0]}"

    def _expected(self, width: float) -> float:
        """Seconds of a candidate, by those of its width or of others in proportion."""
        scaled = [seconds * width / other for other, seconds in self.took.items()]
        return self.took.get(width, max(scaled, default=0.0))

    def _take(self, candidate: Candidate, place: Path, left: float | None) -> None:
        begin = self.spent
        budget = _given(place, None if left is None else max(left, LEAST_SECONDS))
        with warnings.catch_warnings():
            if self.teacher is not None:  # the first one's warnings say what is wrong with all
                warnings.simplefilter("ignore", UserWarning)
            found = distilled(
                self.model if self.teacher is None else self.teacher, self.data, candidate.config,
                widen=None if candidate.widen == 1 else candidate.widen, epochs=self.epochs,
                budget=budget, seed=self.seed, log=place,
                trained=self.trained if self.teacher is None else True,
            )  # fmt: skip
        write_json(place / BEGUN, {"seconds": budget, "ended": True})
        if self.teacher is None:
            self.teacher = found.teacher
            if found.ended.get("teacher") == BUDGET_SPENT:
                epochs = len(found.teacher_history)
                self.doubt = f"the budget ended the float model's training at epoch {epochs}"
        self.done[candidate] = found, frozen_forward(found.model, self.problem)
        took = max(found.seconds, self.spent - begin - found.teacher_seconds)
        self.took[candidate.widen] = max(took, self.took.get(candidate.widen, 0.0))

    def result(self, goal: Goal) -> TuneResult:
        """Measure all candidates and the float model in turns."""
        problem, teacher = self.problem, self.teacher
        assert teacher is not None, "an error of the first candidate is raised"
        if not self.done:
            raise ValueError(f"tune: no candidate can be run: {next(iter(self.failed.values()))}")
        floats = float_forwards(teacher, problem)
        forwards = [*(forward for _, forward in self.done.values()), *floats.values()]
        left = None if self.budget is None else max(0.0, self.budget - self.spent)
        total = ROUNDS * len(forwards)
        with tqdm(total=total, desc="measured in turns", disable=None, leave=False) as bar:
            timings = measure_in_turns(
                [forward.run for forward in forwards], problem.device, rounds=ROUNDS,
                seconds=left, progress=bar.update,
            )  # fmt: skip
        timed = iter(timings)
        points = tuple(
            Point(str(one), forward, next(timed), found.model, one, len(found.history),
                  found.ended["student"])
            for one, (found, forward) in self.done.items()
        )  # fmt: skip
        beside = tuple(
            Point(f"float ({form})", forward, next(timed), teacher)
            for form, forward in floats.items()
        )
        noisy, short = noise(timings), [p.name for p in points if p.ended == BUDGET_SPENT]
        remarks = [f"{noisy[0].upper()}{noisy[1:]}."] if noisy else []
        if short:
            remarks.append(f"The budget cut trainings short: {'; '.join(short)}.")
        if self.doubt is not None:
            remarks.append(f"Scores are lower than they can be: {self.doubt}.")
        device = problem.device
        is_cuda = device.type == "cuda"
        workload = {
            "model": type(self.model).__name__,
            "nodes": problem.y.size(0),
            "edges": self.data.num_edges,
            "features": self.data.x.size(1),
            "device": torch.cuda.get_device_name(device) if is_cuda else cpu_model(),
            "seed": self.seed,
        }
        return TuneResult(
            points, beside, teacher, replace(goal, reference=beside[0].score),
            tuple(self.left_out), self.failed, tuple(remarks), problem.objective.metric, workload,
            self.spent, self.budget, self.doubt,
        )  # fmt: skip


def _state(place: Path) -> dict[str, Any]:
    """The seconds that a training was given and whether it has ended; empty if it was not begun."""
    file = place / BEGUN
    if not file.is_file():
        return {}
    kept = read_json(file)
    found = kept if isinstance(kept, dict) else {}
    seconds, ended = found.get("seconds", ""), found.get("ended")
    if not isinstance(seconds, float | None) or not isinstance(ended, bool):
        raise FileError(f"{file}: is damaged; delete its folder to train this candidate anew")
    return found


def _has_ended(place: Path) -> bool:
    return bool(_state(place).get("ended"))


def _given(place: Path, seconds: float | None) -> float | None:
    """Seconds for a training; for a finished one those that it had, so that it ends at once.

    One that was stopped begins anew where its seconds are limited: with others its teacher would be
    trained for longer, and no longer be what the student learnt from.
    """
    state = _state(place)
    before: float | None = state.get("seconds")
    if state.get("ended"):
        return before
    if state and not (before is None and seconds is None):
        shutil.rmtree(place)
    write_json(place / BEGUN, {"seconds": seconds, "ended": False})
    return seconds
