"""What compilers of PyTorch must be able to do for a test."""

import pytest
import torch

compiles_training = pytest.mark.skipif(
    torch.__version__ < (2, 13),
    reason="before torch 2.13 the compiler stops at these layers in training or loses gradients",
)
