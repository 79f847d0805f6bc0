"""Times the nearest codes by Hamming distance against products and topk of torch: JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bench.command import exits_with_status, parse, run_benchmark
from bench.tables.timings import hamming_table
from bench.tasks import SEED
from bitgnn import BitTensor
from bitgnn.bits.tensor import words_for
from bitgnn.measure.timing import Clock, compare
from bitgnn.nn import hamming_topk

CASES = {
    # queries, codes
    "cpu": ((1, 1_000_000), (64, 1_000_000)),
    "cuda": ((1, 10_000_000), (1000, 10_000_000)),
}
QUICK = ((1, 2000), (3, 2000))
SIZE, K = 256, 100
GROUP = "nearest codes"
GOAL = 10.0
"""Ratio to the peer that is to be reached by the first case of CPUs and the second of GPUs."""


@dataclass(frozen=True)
class CodesCase:
    """Random codes and queries, searched by every contender."""

    queries: int
    codes: int
    device: str
    threads: int

    group = GROUP

    @property
    def name(self) -> str:
        """Sizes."""
        return f"{self.queries} x {self.codes} codes of {SIZE} bits, top {K}"

    def run(self, clock: Clock, repeats: int) -> dict[str, Any]:
        """Time all contenders in the same rounds, and compare their distances."""
        generator = torch.Generator(self.device).manual_seed(SEED)
        queries, codes = (
            BitTensor(
                torch.randint(
                    -(2**31), 2**31, (rows, words_for(SIZE)),
                    dtype=torch.int32, device=self.device, generator=generator,
                ),
                SIZE,
            )
            for rows in (self.queries, self.codes)
        )  # fmt: skip
        calls = self._contenders(queries, codes)
        expected = hamming_topk(queries, codes, K)[0]
        checked = all(torch.equal(call(), expected) for call in calls.values())
        timings = compare(calls, repeats=repeats, device=self.device)
        medians = {name: timing.median for name, timing in timings.items()}
        peers = [time for name, time in medians.items() if name.startswith("torch")]
        return {
            "queries": self.queries,
            "codes": self.codes,
            "size": SIZE,
            "k": K,
            "checked": checked,
            "ratio": min(peers) / medians["bitgnn"],
            "goal": GOAL if (self.queries == 1) == (self.device == "cpu") else None,
            "contenders": {name: timing.to_dict() for name, timing in timings.items()},
        }

    def _contenders(self, queries: BitTensor, codes: BitTensor) -> dict[str, Callable[[], Tensor]]:
        """Calls that return the distances of the nearest codes."""
        dtype = torch.float16 if self.device == "cuda" else torch.float32
        x, table = queries.to_float().to(dtype), codes.to_float().to(dtype)

        def product() -> Tensor:
            dots = (x @ table.T).topk(K, dim=1).values
            return ((SIZE - dots) / 2).to(torch.int32)

        name = f"torch {str(dtype).removeprefix('torch.')} product and topk"
        calls = {"bitgnn": lambda: hamming_topk(queries, codes, K)[0], name: product}
        if self.device == "cpu":
            calls |= self._faiss(queries, codes)
        return calls

    def _faiss(self, queries: BitTensor, codes: BitTensor) -> dict[str, Callable[[], Tensor]]:
        """The exact index of faiss over the same bits, where it is installed."""
        try:
            import faiss
        except ImportError:
            return {}
        faiss.omp_set_num_threads(self.threads)
        index = faiss.IndexBinaryFlat(SIZE)
        index.add(codes.words.numpy().view("uint8"))
        bits = queries.words.numpy().view("uint8")
        return {"faiss IndexBinaryFlat": lambda: torch.from_numpy(index.search(bits, K)[0])}


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark of nearest codes."""
    description = "Times hamming_topk beside products and topk in torch, and faiss if installed."
    names = {"cpu": "hamming_cpu", "cuda": "hamming_cuda"}
    arguments = parse(description, names, argv)

    def cases() -> Iterator[CodesCase]:
        for queries, codes in QUICK if arguments.quick else CASES[arguments.device]:
            yield CodesCase(queries, codes, arguments.device, arguments.threads)

    return run_benchmark(arguments, cases(), hamming_table, line=_line)


def _line(result: dict[str, Any]) -> str:
    """Line of a case on the terminal."""
    times = [f"{name} {c['median'] * 1e3:.3g} ms" for name, c in result["contenders"].items()]
    return f"{result['name']}: {', '.join(times)}; {result['ratio']:.1f} times"


if __name__ == "__main__":
    raise SystemExit(main())
