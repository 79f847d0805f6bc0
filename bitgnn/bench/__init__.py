"""Benchmarks: timing, machine record, cases and reports used by the files in scripts/."""

from bitgnn.bench.environment import environment
from bitgnn.bench.timing import Timing, compare, measure

__all__ = ["Timing", "compare", "environment", "measure"]
