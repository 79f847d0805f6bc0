"""Loaders of the graphs used by demo, training and benchmarks."""

from bitgnn.data.digits import load_digits_graph
from bitgnn.data.planetoid import DataError, load_planetoid

__all__ = ["DataError", "load_digits_graph", "load_planetoid"]
