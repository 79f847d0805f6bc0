"""Times an ensemble with a member a rank, and the reduction of its votes: run it under torchrun.

``torchrun --nproc_per_node 2 scripts/bench_ensembles.py --output ensembles_ranks.json``; runs of
other numbers of ranks and other backends are added to a record that is there.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bench.command import ROOT, exits_with_status, finish
from bench.tables.ensembles import ranks_table
from bitgnn.convert import freeze
from bitgnn.measure.report import environment
from bitgnn.measure.timing import Timing
from bitgnn.models import Ensemble, resnet

VOTINGS = ("hard bagging", "soft bagging", "boosting")
"""Boosting is soft voting with a weight a member."""
DEPTH, CLASSES, BATCH, SIZE = 18, 1000, 128, 224
REPEATS, CALLS, WARM_UPS = 15, 5, 3


def member(number: int, arguments: Any) -> torch.nn.Module:
    """A frozen ResNet with random weights of its own."""
    torch.manual_seed(number)
    model = resnet(DEPTH, classes=CLASSES, image_size=arguments.size).to(arguments.device)
    model.train()
    model(torch.randn(8, 3, arguments.size, arguments.size, device=arguments.device))
    return freeze(model.eval())


@torch.inference_mode()
def measured(voting: str, arguments: Any) -> dict[str, Any]:
    """Seconds of the members' work, of the whole call and of the all-reduce alone."""
    world, rank = dist.get_world_size(), dist.get_rank()
    weights = [1.0 + number for number in range(world)] if voting == "boosting" else None
    kind: Any = "hard" if voting.startswith("hard") else "soft"
    own = member(rank, arguments)
    ensemble = Ensemble([own] * world, kind, weights).eval().shard()
    x = torch.randn(arguments.batch, 3, arguments.size, arguments.size, device=arguments.device)
    votes = torch.zeros(arguments.batch, CLASSES, dtype=torch.float64, device=arguments.device)
    scores: Tensor = ensemble(x)
    everywhere = [torch.empty_like(scores) for _ in range(world)]
    dist.all_gather(everywhere, scores)
    if not all(torch.equal(one, scores) for one in everywhere):
        raise RuntimeError(f"{voting}: ranks have different scores")
    calls: dict[str, Callable[[], Any]] = {
        "members": partial(own, x), "whole": partial(ensemble, x),
        "all_reduce": partial(dist.all_reduce, votes),
    }  # fmt: skip
    times = {name: _seconds(call, arguments.device) for name, call in calls.items()}
    return {"ranks": world, "backend": dist.get_backend(), "voting": voting,
            "bytes": votes.nbytes, "batch": arguments.batch, "size": arguments.size,
            **{name: timing.to_dict() for name, timing in times.items()}}  # fmt: skip


def _seconds(call: Callable[[], Any], device: str) -> Timing:
    """All ranks begin together; the time is that of this rank."""
    seconds = []
    for number in range(WARM_UPS + REPEATS):
        dist.barrier()
        _wait(device)
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        _wait(device)
        if number >= WARM_UPS:
            seconds.append((time.perf_counter() - start) / CALLS)
    return Timing(tuple(seconds), CALLS)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Measures every voting; rank 0 writes the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--backend", help="of torch.distributed (default: nccl or gloo)")
    parser.add_argument("--batch", type=int, default=BATCH, help=f"images (default {BATCH})")
    parser.add_argument("--size", type=int, default=SIZE, help=f"pixels (default {SIZE})")
    parser.add_argument("--output", type=Path, default=Path("ensembles_ranks.json"))
    arguments = parser.parse_args(argv)
    backend = arguments.backend or {"cpu": "gloo", "cuda": "nccl"}[arguments.device]
    dist.init_process_group(backend)
    try:
        if arguments.device == "cuda":
            torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
        else:
            torch.set_num_threads(1)
        results = [measured(voting, arguments) for voting in VOTINGS]
        if dist.get_rank():
            return 0
        return finish(
            arguments.output, _added(arguments.output, results, arguments.device), ranks_table
        )
    finally:
        dist.destroy_process_group()


def _added(output: Path, results: list[dict[str, Any]], device: str) -> dict[str, Any]:
    """The record with these results in place of those of as many ranks and the same backend."""
    mine = {(one["ranks"], one["backend"]) for one in results}
    before = json.loads(output.read_text("utf-8"))["results"] if output.exists() else []
    kept = [one for one in before if (one["ranks"], one["backend"]) not in mine]
    return {
        "benchmark": f"ensembles_ranks_{device}",
        "environment": environment(ROOT),
        "settings": {"repeats": REPEATS},
        "results": [*kept, *results],
    }


if __name__ == "__main__":
    raise SystemExit(main())
