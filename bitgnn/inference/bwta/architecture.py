"""Architecture of a frozen transformer beside its tensors, and a model rebuilt from it."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from bitgnn.inference.bounds import check_arguments, parameters_on_meta
from bitgnn.inference.bwta.attention import (
    KINDS,
    FrozenBWTAAttention,
    FrozenBWTAMultiheadAttention,
)
from bitgnn.inference.bwta.linear import FrozenBWTALayer, FrozenBWTALinear, inside
from bitgnn.nn import BWTAAttention, BWTALinear, BWTAMultiheadAttention
from bitgnn.nn.attention.pretrained import CORE, IMPLEMENTATION, is_pretrained, use_implementation

FORMS: dict[str, Any] = {
    FrozenBWTALinear.kind: FrozenBWTALinear,
    FrozenBWTAMultiheadAttention.kind: FrozenBWTAMultiheadAttention,
    **dict.fromkeys(KINDS.values(), FrozenBWTAAttention),
}
OWN = "bitgnn.models"
PRETRAINED = "transformers"
MODEL_TYPES = frozenset((
    "albert", "bart", "bert", "bitnet", "deberta-v2", "deit", "distilbert", "electra", "gemma",
    "gemma2", "gpt2", "gpt_neox", "llama", "mistral", "mixtral", "modernbert", "opt", "phi", "phi3",
    "qwen2", "qwen3", "roberta", "t5", "vit", "xlm-roberta",
))  # fmt: skip
"""Types of the library's models that a file may name: they load nothing by themselves."""
ATTENTION_KEY = "attn_implementation"
IMPLEMENTATIONS = (None, "eager", "sdpa", IMPLEMENTATION)
"""Attention functions that a file may name; other names may stand for code from the Hub."""


def frozen_layers(model: nn.Module) -> dict[str, FrozenBWTALayer]:
    """Packed layers by name, those inside of others left out."""
    found: dict[str, FrozenBWTALayer] = {}
    for name, module in model.named_modules():
        parents = (f"{parent}." if parent else "" for parent in found)
        if isinstance(module, FrozenBWTALayer) and not name.startswith(tuple(parents)):
            found[name] = module
    return found


def describe(model: nn.Module) -> dict[str, Any]:
    """Plain values from which, with the tensors, :func:`build` makes the model again."""
    architecture: dict[str, Any] = {"library": None, "class": type(model).__qualname__}
    config: Any = getattr(model, "config", None)
    if is_pretrained(model):
        if config.model_type in MODEL_TYPES:
            settings = {
                key: value
                for key, value in config.to_dict().items()
                if not key.endswith(ATTENTION_KEY) or value in IMPLEMENTATIONS
            }
            architecture |= {"library": PRETRAINED, "config": settings}
    elif type(model).__module__.startswith(f"{OWN}.") and isinstance(config, Mapping):
        architecture |= {"library": OWN, "config": dict(config)}
    layers = frozen_layers(model)
    floats = {
        name: module.scale
        for name, module in model.named_modules()
        if isinstance(module, BWTAAttention)
    }
    return {
        "architecture": architecture,
        "layers": {name: {"kind": m.kind, **m.description()} for name, m in layers.items()},
        "float_attention": floats,
    }


def build(
    description: Mapping[str, Any], tensors: Mapping[str, Tensor], model: nn.Module | None
) -> nn.Module:
    """The model of a description made by :func:`describe` with these tensors as its state.

    ``model``, of the same architecture, trained or not, is for one that is neither of
    ``transformers`` nor of ``bitgnn.models``; it stays unchanged.

    Raises:
        ImportError: the model needs ``transformers``, which is not installed.
        KeyError: an entry is missing.
        ValueError: a model is needed and there is none, or something does not fit.
    """
    if model is None:
        skeleton = _skeleton(description["architecture"], tensors)
    else:
        skeleton = copy.deepcopy(model)
    layers: Mapping[str, Any] = description["layers"]
    for name, layer in layers.items():
        if layer["kind"] not in FORMS:
            raise ValueError(f"layer {name!r} is of the unknown kind {layer['kind']!r}")
        frozen = FORMS[layer["kind"]].from_tensors(layer, inside(tensors, name))
        skeleton = put_module(skeleton, name, frozen)
    for name, factor in description["float_attention"].items():
        skeleton = put_module(skeleton, name, BWTAAttention(level=None, scale=factor))
    for name, module in list(skeleton.named_modules()):
        if isinstance(module, BWTALinear | BWTAMultiheadAttention):
            skeleton = put_module(skeleton, name, float_form(module))
    leave_fast_paths(skeleton)
    if is_pretrained(skeleton) and any(name.endswith(CORE) for name in layers):
        use_implementation(skeleton)
    try:
        skeleton.load_state_dict(dict(tensors), strict=True, assign=True)
    except RuntimeError as error:
        raise ValueError(f"the tensors do not fit {type(skeleton).__name__}: {error}") from error
    return skeleton


def float_form(module: nn.Module) -> nn.Module:
    """Torch's own form of a BWTA layer at level None, with the same parameters.

    Attention without projections, which torch has no module of, is copied.
    """
    if not isinstance(module, BWTALinear | BWTAMultiheadAttention):
        return copy.deepcopy(module)
    new: nn.Module
    with parameters_on_meta():
        if isinstance(module, BWTALinear):
            new = nn.Linear(module.in_features, module.out_features, module.bias is not None)
        else:
            new = nn.MultiheadAttention(**multihead_options(module))
    state = module.state_dict()
    new.load_state_dict({name: state[name].clone() for name in new.state_dict()}, assign=True)
    return new.train(module.training)


def multihead_options(module: nn.MultiheadAttention) -> dict[str, Any]:
    """Arguments of torch's constructor that make a module of the same shape."""
    names = "embed_dim", "num_heads", "dropout", "add_zero_attn", "kdim", "vdim", "batch_first"
    options = {name: getattr(module, name) for name in names}
    return options | {
        "bias": module.in_proj_bias is not None,
        "add_bias_kv": module.bias_k is not None,
    }


def leave_fast_paths(model: nn.Module) -> None:
    """Keep torch's encoders from computing with weights, or on nested tensors, past modules."""
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0
        elif isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False


def check_needs_no_model(description: Mapping[str, Any], source: object) -> None:
    """Refuse a description, possibly damaged, of a class that only the user has.

    ``source`` is where it is from, for the message.
    """
    architecture = description.get("architecture")
    if isinstance(architecture, Mapping) and architecture.get("library", OWN) is None:
        raise ValueError(
            f"load: model must be given, one like that in {source}, a {architecture.get('class')}, "
            f"which a file cannot make, trained or not; got None"
        )


def _skeleton(architecture: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> nn.Module:
    """A model without weights, of a known class and no larger than its tensors allow."""
    library, name, config = (architecture[key] for key in ("library", "class", "config"))
    if library not in (OWN, PRETRAINED):
        raise ValueError(f"models of {library!r} are not known here")
    form = getattr(importlib.import_module(library), str(name), None)
    if not isinstance(form, type) or not issubclass(form, nn.Module):
        raise ValueError(f"{library} has no model {name!r}")
    check_arguments(config)
    _check_attention(config)
    if library == OWN:
        with parameters_on_meta(tensors):
            return form(**config)
    kind: Any = getattr(form, "config_class", None)
    if getattr(kind, "model_type", None) not in MODEL_TYPES:
        raise ValueError(f"{name} is not among the models of {library} that a file may name")
    with parameters_on_meta(tensors):
        return form(kind.from_dict(config))


def _check_attention(config: Any) -> None:
    """Refuse attention functions from elsewhere, wherever a configuration names them."""
    if isinstance(config, Mapping):
        for key, value in config.items():
            if str(key).endswith(ATTENTION_KEY) and value not in IMPLEMENTATIONS:
                raise ValueError(f"{key} must be one of {IMPLEMENTATIONS}, got {value!r}")
            _check_attention(value)
    elif isinstance(config, list | tuple):
        for value in config:
            _check_attention(value)


def put_module(model: nn.Module, name: str, module: nn.Module) -> nn.Module:
    """Put a module where another is, in every place that holds that one, or where none is yet.

    The model is changed in place and returned, or is the new module where ``name`` is empty.
    """
    if not name:
        return module
    path, _, last = name.rpartition(".")
    parent = model.get_submodule(path)
    old = parent._modules.get(last)
    setattr(parent, last, module)
    for other in list(model.modules()) if old is not None else ():
        for key in [key for key, child in other._modules.items() if child is old]:
            setattr(other, key, module)
    return model
