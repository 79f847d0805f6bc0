"""Result of distill(): the binary model, its teacher, the gap between them, and the cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bitgnn.convert import freeze
from bitgnn.distillation.calling import Inputs, arguments_of, scores_in
from bitgnn.distillation.fitting import ALL_EPOCHS
from bitgnn.distillation.objectives import Objective
from bitgnn.distillation.problems import Results
from bitgnn.measure.report import format_bytes, format_seconds, open_frame, png
from bitgnn.measure.timing import compare

REPEATS = 7


@dataclass(frozen=True)
class Scores:
    """Scores of one model by part, higher is better.

    Attributes:
        val: of validation.
        test: of the test rows; None where there are none.
    """

    val: float
    test: float | None


@dataclass(frozen=True)
class Cost:
    """Time and size of a forward.

    Attributes:
        seconds: median of a call, result on the host.
        weight_bytes: of weights and everything else that the model keeps.
    """

    seconds: float
    weight_bytes: int


@dataclass(frozen=True)
class Distilled:
    """The result of :func:`bitgnn.distill`; prints as a short report.

    Attributes:
        model: the binary model at its best epoch, in evaluation, ready for :func:`bitgnn.freeze`.
        teacher: the float model that taught it: the given one, or a trained copy.
        metric: name of the score.
        scores: of the binary model.
        teacher_scores: of the teacher.
        gap: teacher minus student in points (hundredths), of the test rows where there are some,
            else of validation.
        gap_error: standard error of the gap, from the rows on which the two differ; None where the
            score is no mean over rows.
        judgement: whether the given model counted as trained, and why.
        smoothing: how the teacher's probabilities were spread over the graph.
        history: a row an epoch of the student: ``epoch``, ``train_loss``, ``val_score``,
            ``divergence``, ``learning_rate``, ``seconds``, ``stage`` (from 0); before the last
            stage the student is binary in part.
        teacher_history: the same of the teacher, without stages; empty where none was needed.
        seconds: of the student's training.
        teacher_seconds: of the teacher's.
        interrupted: whether Ctrl-C ended the training early.
        ended: why each training ended, ``"teacher"`` and ``"student"`` or its stages.
    """

    model: nn.Module
    teacher: nn.Module
    metric: str
    scores: Scores
    teacher_scores: Scores
    gap: float
    gap_error: float | None
    judgement: str
    smoothing: str
    history: list[dict[str, float]] = field(repr=False)
    teacher_history: list[dict[str, float]] = field(repr=False)
    seconds: float
    teacher_seconds: float
    interrupted: bool
    ended: dict[str, str]
    example: Inputs = field(repr=False)
    same_width: nn.Module | None = field(default=None, repr=False)

    def __str__(self) -> str:
        lines = [f"{'':8s}{'validation':>12s}{'test':>10s}   {self.metric}"]
        for name, scores in (("teacher", self.teacher_scores), ("binary", self.scores)):
            test = "" if scores.test is None else f"{scores.test:10.4f}"
            lines.append(f"{name:8s}{scores.val:12.4f}{test}")
        spread = "" if self.gap_error is None else f" ± {self.gap_error:.2f}"
        lines.append(
            f"gap {self.gap:.2f}{spread} points; smoothing of the teacher: {self.smoothing}"
        )
        trained = f"trained in {format_seconds(self.seconds)}"
        if self.teacher_history:
            trained += f", the teacher in {format_seconds(self.teacher_seconds)}"
        early = [f"{name} ended {why}" for name, why in self.ended.items() if why != ALL_EPOCHS]
        lines += ["; ".join([trained, *early]), f"the model given counts as {self.judgement}"]
        return "\n".join(lines)

    @cached_property
    def frozen(self) -> Any:
        """:func:`bitgnn.freeze` of the model, done once."""
        return freeze(self.model)

    def costs(self) -> dict[str, Cost]:
        """Time and bytes of a forward: ``teacher``, ``frozen``, and ``frozen, same width``.

        The last one is there where the student was widened. Medians of 7 calls on the graph or
        batch of the training, warm.
        """
        models = {"teacher": self.teacher, "frozen": self.frozen}
        if self.same_width is not None:
            models["frozen, same width"] = freeze(self.same_width)
        args, named = arguments_of(self.teacher, self.example)

        def once(model: Any) -> Tensor:
            return scores_in(model(*args, **named)).cpu()  # waits for it

        calls = {name: partial(once, model) for name, model in models.items()}
        with torch.no_grad():
            times = compare(calls, repeats=REPEATS)
        sizes = {
            name: sum(t.numel() * t.element_size() for t in (*m.parameters(), *m.buffers()))
            for name, m in models.items()
        }
        return {name: Cost(times[name].median, size) for name, size in sizes.items()}

    def cost_table(self, costs: dict[str, Cost] | None = None) -> str:
        """:meth:`costs` as text.

        Args:
            costs: measured before; None measures them.
        """
        return "\n".join(
            f"{name:20s}{format_seconds(cost.seconds):>12s}{format_bytes(cost.weight_bytes):>12s}"
            for name, cost in (costs or self.costs()).items()
        )

    def plot(self, path: str | Path | None = None) -> bytes:
        """Scores and divergence by epoch, the teacher's score as a line.

        Args:
            path: PNG file to write; None for none.

        Returns:
            The image as PNG.
        """
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        names = ("epoch", "val_score", "divergence")
        epochs, scores, divergences = ([row[name] for row in self.history] for name in names)
        left.plot(epochs, scores, color="#d1603d", label="binary")
        left.axhline(self.teacher_scores.val, color="#8a8f98", label="teacher")
        left.set_title(f"Validation {self.metric}")
        left.legend(frameon=False)
        right.plot(epochs, divergences, color="#3d7ea6")
        right.set_title("Divergence from the teacher")
        right.set_ylim(bottom=0)
        for panel in (left, right):
            panel.set_xlabel("epoch")
        open_frame(left, right)
        image = png(figure)
        if path is not None:
            Path(path).write_bytes(image)
        return image


def gap_between(
    objective: Objective, teacher: Results, student: Results
) -> tuple[Scores, Scores, float, float | None]:
    """Scores of both, the gap in points, and its standard error over paired rows."""
    found: list[Scores] = []
    for results in (teacher, student):
        scores = {part: float(objective.score(*result)) for part, result in results.items()}
        found.append(Scores(scores["val"], scores.get("test")))
    part = "test" if "test" in teacher else "val"
    gap = objective.scale * (getattr(found[0], part) - getattr(found[1], part))
    rows = [objective.successes(*results[part]) for results in (teacher, student)]
    error: Any = None
    if rows[0] is not None and rows[1] is not None and rows[0].numel() > 1:
        difference = rows[0] - rows[1]
        error = objective.scale * float(difference.std()) / difference.numel() ** 0.5
    return found[0], found[1], gap, error
