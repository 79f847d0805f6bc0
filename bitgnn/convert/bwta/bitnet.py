"""Linear layers of BitNet checkpoints, as transformers loads them, in their plain form."""

from __future__ import annotations

import copy
import sys
from typing import Any

import torch
from torch import Tensor, nn

from bitgnn.convert.walker import put_everywhere

LIBRARY = "transformers.integrations.bitnet"
CLASSES = ("AutoBitLinear", "BitLinear")
VALUES_A_BYTE, VALUE_BITS = 4, 2


def with_plain_linear(model: nn.Module) -> nn.Module:
    """A copy of a model whose BitNet layers are ``nn.Linear`` with the weights they multiply by.

    ``AutoBitLinear`` has float weights, to be quantised at each call or scaled; ``BitLinear`` has
    weights of -1, 0 and 1, four a byte, over a scale. Their activations stay floats here, which
    BWTA layers make ternary. An RMS norm inside comes in front. Other models are returned as is.
    """
    library = sys.modules.get(LIBRARY)  # no model has such layers before it is imported
    kinds = tuple(getattr(library, name) for name in CLASSES if hasattr(library, name))
    if not any(isinstance(module, kinds) for module in model.modules()):
        return model
    result = copy.deepcopy(model)
    for module in [module for module in result.modules() if isinstance(module, kinds)]:
        result = put_everywhere(result, module, _plain(module))
    return result


def _plain(module: Any) -> nn.Module:
    if module.weight.dtype != torch.uint8:
        weight = module.weight.detach().clone()
        if not module.online_quant:
            weight *= module.weight_scale
    else:
        weight = _unpacked(module.weight)[: module.out_features] / module.weight_scale
        weight = weight.to(module.dtype or torch.float32)
    outputs, inputs = weight.shape
    has_bias = module.bias is not None
    linear = nn.Linear(inputs, outputs, has_bias, device=weight.device, dtype=weight.dtype)
    with torch.no_grad():
        linear.weight.copy_(weight)
        if has_bias:
            linear.bias.copy_(module.bias)
    norm = getattr(module, "rms_norm", None)
    plain: nn.Module = linear if norm is None else nn.Sequential(norm, linear)
    return plain.train(module.training)


def _unpacked(packed: Tensor) -> Tensor:
    """Values ``[4 * O, I]`` of bytes ``[O, I]``, two bits a value plus 1."""
    quarters = [(packed >> (VALUE_BITS * k)) & 0b11 for k in range(VALUES_A_BYTE)]
    return torch.cat(quarters).float() - 1
