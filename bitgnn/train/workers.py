"""Runs of one or several experiments side by side in worker processes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from bitgnn.train.build import GraphSource
from bitgnn.train.config import ExperimentConfig
from bitgnn.train.deploy import MismatchError, freeze_checked
from bitgnn.train.experiment import make_progress
from bitgnn.train.run import RunOptions, train_run
from bitgnn.train.store import Run, RunStore

THREADS_VARIABLE = "OMP_NUM_THREADS"
# Kept small: a worker holds one graph of each experiment it has met.
_graphs: dict[str, GraphSource] = {}


class WorkerError(RuntimeError):
    """A worker process died; the message says what is kept."""


@dataclass(frozen=True)
class Job:
    """An experiment and the folder of its runs.

    Attributes:
        config: the experiment.
        output: its folder.
    """

    config: ExperimentConfig
    output: Path


@dataclass(frozen=True)
class Finished:
    """A finished run and what came of freezing it.

    Attributes:
        run: the run.
        difference: largest difference of a logit between the frozen and the trained model; None
            where it was not frozen or differs in a class.
        mismatch: what is wrong with the frozen model; None for nothing.
    """

    run: Run
    difference: float | None = None
    mismatch: str | None = None


@dataclass(frozen=True)
class _Unit:
    """One form of one seed of one job."""

    job: int
    seed: int
    form: str


def train_side_by_side(
    jobs: Sequence[Job],
    data_root: str | os.PathLike[str] | None,
    options: RunOptions,
    workers: int,
    console: Console,
    check_frozen: bool = False,
) -> list[list[Finished]]:
    """Train all forms and seeds of several experiments in processes of one thread each.

    Every form of every seed is a unit of its own with its own checkpoint; it starts when the
    forms it needs are finished. Seeds come in turn, so that an early stop leaves whole ones.

    Args:
        jobs: the experiments.
        data_root: folder of the data sets.
        options: device and the like.
        workers: processes.
        console: where the bar is drawn.
        check_frozen: freeze every binary run where it was trained and compare it on every node.

    Returns:
        For each job its runs, by seed, then by form; a frozen model that differs is reported
        there.

    Raises:
        DataError: a graph cannot be loaded or trained on; nothing was started.
        WorkerError: a worker was killed; finished runs and checkpoints are kept.
        KeyboardInterrupt: stopped by the user; the same is kept.
        Exception: the first error of a unit, after the others under way are finished.
    """
    for job in jobs:
        # Copies and processed files are made here once, not by all workers at a time.
        GraphSource(job.config, data_root).check()
        RunStore(job.output, job.config)
    waiting = [
        _Unit(number, seed, form)
        for seed in range(max(job.config.seeds for job in jobs))
        for number, job in enumerate(jobs)
        if seed < job.config.seeds
        for form in job.config.forms
    ]
    done: dict[_Unit, Finished] = {}
    # Forked children would share the parent's CUDA and thread states.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker)
    threads = os.environ.get(THREADS_VARIABLE)
    os.environ[THREADS_VARIABLE] = "1"  # children read it when they import torch
    try:
        with make_progress(console) as progress:
            bar = progress.add_task("runs", total=len(waiting))
            running: dict[Future[Finished], _Unit] = {}
            while waiting or running:
                for unit in _ready(waiting, jobs, done)[: workers - len(running)]:
                    waiting.remove(unit)
                    job = jobs[unit.job]
                    arguments = (job, unit.form, unit.seed, data_root, options, check_frozen)
                    running[pool.submit(_train, *arguments)] = unit
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    unit = running.pop(future)
                    done[unit] = future.result()
                    progress.update(bar, description=f"{jobs[unit.job].config.name} {unit.form}")
                    progress.advance(bar)
    except BrokenProcessPool as error:
        folders = ", ".join(str(job.output) for job in jobs)
        raise WorkerError(
            f"a worker process was killed (out of memory?); finished runs and checkpoints are "
            f"kept in {folders}, the same command goes on"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)
        os.environ.pop(THREADS_VARIABLE)
        if threads is not None:
            os.environ[THREADS_VARIABLE] = threads
    return [
        [
            done[_Unit(number, seed, form)]
            for seed in range(job.config.seeds)
            for form in job.config.forms
        ]
        for number, job in enumerate(jobs)
    ]


def _ready(
    waiting: Sequence[_Unit], jobs: Sequence[Job], done: dict[_Unit, Finished]
) -> list[_Unit]:
    """Units whose forms before them are finished."""
    return [
        unit
        for unit in waiting
        if all(
            _Unit(unit.job, unit.seed, form) in done
            for form in jobs[unit.job].config.forms[unit.form].needs()
        )
    ]


def _start_worker() -> None:
    torch.set_num_threads(1)


def _train(
    job: Job,
    form: str,
    seed: int,
    data_root: str | os.PathLike[str] | None,
    options: RunOptions,
    check_frozen: bool,
) -> Finished:
    """What a worker does with one unit."""
    source = _graphs.setdefault(job.config.model_dump_json(), GraphSource(job.config, data_root))
    data = source(seed)
    store = RunStore(job.output, job.config)
    run = train_run(job.config, form, seed, data, store, options)
    if not check_frozen or not job.config.is_binary(form):
        return Finished(run)
    try:
        return Finished(run, freeze_checked(job.config, run, data, store)[1])
    except MismatchError as error:
        return Finished(run, mismatch=str(error))
