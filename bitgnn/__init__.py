"""Binary graph neural networks for PyTorch: bits, operators, layers and inference."""

from bitgnn import ops
from bitgnn.bits import BitAdjacency, BitTensor, BlockedLayout, FrdcLayout

__version__ = "0.1.0"

__all__ = [
    "BitAdjacency",
    "BitTensor",
    "BlockedLayout",
    "FrdcLayout",
    "__version__",
    "ops",
]
