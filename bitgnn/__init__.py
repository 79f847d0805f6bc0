"""Binary graph neural networks for PyTorch: bits, operators, layers and inference."""

from bitgnn import ops

__version__ = "0.1.0"

__all__ = ["__version__", "ops"]
