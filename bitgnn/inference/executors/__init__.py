"""Executors of frozen models: eager, CUDA graphs, and the choice between them."""

from bitgnn.inference.executors.choosing import (
    AutoExecutor,
    EagerExecutor,
    Executor,
    make_executor,
)
from bitgnn.inference.executors.cuda_graph import CudaGraphExecutor

__all__ = ["AutoExecutor", "CudaGraphExecutor", "EagerExecutor", "Executor", "make_executor"]
