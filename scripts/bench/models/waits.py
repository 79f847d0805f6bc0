"""Host time that callers of whole models wait from a call to its result, Python included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch

from bench.call_times import Call, time_calls
from bench.cases import Contender, Record, WrongResultError
from bench.models.ours import SPARSE, Frozen
from bitgnn.inference import capture
from bitgnn.measure.timing import MIN_REPEATS, Clock

__all__ = ["add_calls"]


def add_calls(
    ours: Iterable[Record],
    networks: Mapping[str, Frozen],
    peers: Mapping[str, Contender | None],
    clock: Clock,
) -> Record:
    """Time calls, all of them in each round; those of ours go into their summaries."""
    entries = {f"{entry['form']}, {entry['features']}": entry for entry in ours}
    right = {
        title: entry
        for title, entry in entries.items()
        # Captured calls convert a sparse tensor anew.
        if entry["seconds"] is not None and entry["features"] != SPARSE
    }

    def calls() -> Iterator[tuple[str, Call]]:
        for title, entry in right.items():
            x, graph = networks[entry["form"]].inputs[entry["features"]]
            for name, call in _our_calls(networks[entry["form"]], x, graph):
                yield f"{title}, {name}", call
        for executor, peer in peers.items():
            if peer is not None and peer.ready is not None:
                yield executor, peer.ready.once

    times, failures = time_calls(calls(), clock, MIN_REPEATS, ["call"])
    found = {name: by_way["call"].to_dict() for name, by_way in times.items()}
    for title, entry in entries.items():
        entry["calls"] = {name: found.get(f"{title}, {name}") for name in ("model", "captured")}
    return {"calls": {name: found[name] for name in peers if name in found}, "failures": failures}


def _our_calls(network: Frozen, x: Any, graph: Any) -> Iterator[tuple[str, Call]]:
    """A network called as it is, and captured."""
    model = network.model
    expected = model(x, graph)
    run = capture(model, x, graph)
    if not torch.equal(run(), expected):
        raise WrongResultError("a captured call")
    yield "model", partial(model, x, graph)
    yield "captured", run
