"""Students of several forms by one teacher: teacher and students are kept as soon as they end."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from kept_runs import Run, run_and_keep
from torch import nn

import bitgnn
from bitgnn.distillation.result import Distilled
from bitgnn.measure.report import write_json

__all__ = ["add_student_options", "mean_scores", "run_students", "students_of"]

TEACHER, SECONDS = "teacher.safetensors", "seconds"


def students_of(
    case: Run,
    folder: Path,
    model: nn.Module,
    data: Any,
    options: Callable[[str], dict[str, Any]],
    judge: Callable[[Distilled], dict[str, Any]],
    within: Callable[[str], AbstractContextManager[None]] = lambda form: nullcontext(),
) -> Run:
    """The case with one student for each of its forms, and the seconds of their teacher.

    A form is trained within a context, by default an empty one.

    The first form trains the teacher. What is finished is read from the folder, a training that
    was stopped goes on from its checkpoint.
    """
    own = folder / _file_name(*(value for key, value in case.items() if key != "forms"))
    students: dict[str, Any] = {}
    for form in case["forms"]:
        file = own / f"{_file_name(form)}.json"
        if not file.exists():
            with within(form):
                write_json(file, _student(case, form, own, model, data, options, judge))
        students[form] = json.loads(file.read_text("utf-8"))
    with safetensors.safe_open(own / TEACHER, "pt") as teacher:
        seconds = float(teacher.metadata()[SECONDS])
    return {**case, "teacher_seconds": seconds, "students": students}


def _student(
    case: Run,
    form: str,
    own: Path,
    model: nn.Module,
    data: Any,
    options: Callable[[str], dict[str, Any]],
    judge: Callable[[Distilled], dict[str, Any]],
) -> dict[str, Any]:
    """Train the student of a form, and the teacher where there is none yet."""
    teacher = own / TEACHER
    is_trained = teacher.exists()
    if is_trained:
        model.load_state_dict(safetensors.torch.load_file(teacher))
    result = bitgnn.distill(
        model, data, seed=case["seed"], trained=is_trained,
        log=own / (_file_name(form) if is_trained else "first"), **options(form),
    )  # fmt: skip
    if result.interrupted:
        raise KeyboardInterrupt
    if not is_trained:
        state = {key: t.cpu().contiguous() for key, t in result.teacher.state_dict().items()}
        part = teacher.with_suffix(".part")
        safetensors.torch.save_file(state, part, {SECONDS: str(result.teacher_seconds)})
        part.replace(teacher)
    found = {
        "gap": result.gap, "gap_error": result.gap_error, "seconds": result.seconds,
        "val": result.scores.val, "teacher_val": result.teacher_scores.val, **judge(result),
    }  # fmt: skip
    named = ", ".join(f"{key} {value}" for key, value in case.items() if key != "forms")
    print(f"{named}: {form}: gap {found['gap']:.2f} in {found['seconds']:.0f} s", flush=True)
    return found


def mean_scores(runs: list[Run]) -> list[Run]:
    """Mean test scores of each form and its teachers on a task, the gap and its deviation, cost."""
    cells: dict[tuple[str | None, int, str], list[tuple[Run, Run]]] = {}
    for run in runs:
        for form, student in run["students"].items():
            key = run.get("task"), len(student["history"]), form
            cells.setdefault(key, []).append((run, student))
    rows = []
    for (task, epochs, form), mine in cells.items():
        names = ("teacher", "test", "gap")
        gaps = [student["gap"] for _, student in mine]
        rows.append({
            **({} if task is None else {"task": task}),
            "form": form, "epochs": epochs, "runs": len(mine),
            **{name: statistics.mean(student[name] for _, student in mine) for name in names},
            "gap_std": statistics.stdev(gaps) if len(gaps) > 1 else None,
            "cost": statistics.median(s["seconds"] / r["teacher_seconds"] for r, s in mine),
        })  # fmt: skip
    return rows


def _file_name(*values: Any) -> str:
    return re.sub(r"[^\w.=+]+", "-", "-".join(map(str, values)))


def add_student_options(parser: argparse.ArgumentParser, forms: Iterable[str], seeds: int) -> None:
    """The arguments that all studies of students have."""
    parser.add_argument("--forms", nargs="+", default=list(forms))
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")


def run_students(
    cases: Iterable[Run],
    run: Callable[..., Run],
    summary: Callable[[list[Run]], list[Run]],
    arguments: argparse.Namespace,
) -> int:
    """:func:`run_and_keep` with a folder OUTPUT.parts for what ends before its case does."""
    parts = arguments.output.with_suffix(".parts")
    status = run_and_keep(
        cases, partial(run, folder=parts), summary, arguments.output, arguments.data,
        arguments.device, arguments.workers,
    )  # fmt: skip
    if status == 0:
        shutil.rmtree(parts, ignore_errors=True)
    return status
