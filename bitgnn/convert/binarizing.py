"""binarize(): a copy of a model with binary layers, by the scheme that its configuration is of."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch_geometric.data.data import BaseData
from torch_geometric.nn import MessagePassing

from bitgnn._interpreter import warn
from bitgnn.convert.configs import NAMED, BWTAConfig, Config, GraphConfig, ImageConfig, Precision
from bitgnn.convert.handlers import handler
from bitgnn.convert.network.trace import Arguments, evaluating, has_forward, trace_model
from bitgnn.convert.network.tracer import NotTraced
from bitgnn.convert.reporting import ATTRIBUTE, report_of
from bitgnn.convert.swap.images import is_for_images
from bitgnn.convert.walker import is_compiled, unwrapped
from bitgnn.inference import Frozen
from bitgnn.inference.own_call import Argument, OwnCall
from bitgnn.nn import BWTAAttention
from bitgnn.nn.attention.pretrained import attention_modules
from bitgnn.nn.bwta_linear import ActivationQuantizer
from bitgnn.nn.inputs.looks_up import LooksUp
from bitgnn.nn.roles.settling import follow, settle

_log = logging.getLogger(__name__)

LINEAR_ALONE = (
    "which stays in floats; its linear layers became those of an ImageConfig, the configuration "
    "of models without graph layers. BWTAConfig() is the one for transformers"
)


def binarize(
    model: nn.Module,
    config: GraphConfig | ImageConfig | BWTAConfig | Precision | Example | None = None,
    *,
    precision: Precision | None = None,
    example: Example | None = None,
) -> nn.Module:
    """A copy of ``model`` whose supported layers are binary, with the weights kept.

    The type of the configuration is the scheme; without one the model decides:

    - :class:`GraphConfig`: ``GCNConv``, ``SAGEConv``, ``GraphConv``, ``GATConv`` and
      ``GATv2Conv`` of PyG and of this package are swapped, linear layers where it says so. A model
      of ``bitgnn.models`` changes form as a whole (its ReLU goes too).
    - :class:`ImageConfig`: in a model without graph layers ``Conv2d`` becomes ``BinaryConv2d`` and
      ``Linear`` ``BinaryLinear``: layers at either end stay in floats where they hold few of the
      weights, others that read the input keep its values in fixed point, the rest binarise
      theirs, and a ReLU in front of a sign is dropped, calls in the code included, where torch.fx
      can trace the model.
    - :class:`BWTAConfig`: linear layers and attention of any model, of transformers of Hugging Face
      among others, get binary weights and ternary activations.

    Elsewhere the code of the model is not touched, so that an activation function in it stays; a
    ReLU in front of a sign is warned of: it makes every sign +1.

    Layers of the precisions ``"bin"`` and ``"full"`` look at what their input is made of, and
    find whether a binary layer takes their result, in the first batch that they are trained on;
    with ``example`` they do so now, before an optimizer takes their parameters::

        binary = binarize(model, "bin", example=data)  # or example=(data.x, data.edge_index)
        binary = binarize(model, data)

    Args:
        model: any module tree, which is taken out of ``torch.compile`` and data-parallel wrappers;
            unchanged.
        config: a configuration, or just a precision; None is the configuration that fits the
            model, never a :class:`BWTAConfig`, which a warning names for models with attention. A
            ``Data`` object, tensor, tuple or mapping is ``example``.
        precision: for ``config``, by keyword: ``"bin"``, ``"full"`` or letters.
        example: what the forward takes: a ``Data`` object, which it reads itself or which has its
            arguments as attributes; a tuple of arguments, a mapping of named ones, or the only
            one. The copy runs on it once, in evaluation, with gradients recorded; modes, buffers,
            ``.grad`` and random numbers stay as they are. None for a model without forward.

    Returns:
        The copy; :func:`~bitgnn.convert.report_of` tells what was done. Names, state-dict keys,
        dtypes, devices, modes, hooks, tied and frozen parameters are those of ``model``. A layer
        whose class computes something else, whose weight is computed, or that has further tensors
        stays as it is; the report says why. So does a model without a layer to swap, which a
        warning tells of: it freezes, is saved and read as others are, in floats.

    Raises:
        ValueError: unknown precision, a configuration of another scheme than the model's, a name
            in it that is no layer or of a layer that has to stay, or an ``example`` that the
            forward does not take.
        TypeError: ``model`` is not a module, frozen, scripted or compiled in parts, the precision
            or the example is given twice, or ``example`` is nothing that a forward takes.
    """
    model = _plain(model)
    if is_example(config):
        if example is not None:
            raise TypeError(
                "binarize: example must be given once, got "
                f"{type(config).__name__} as config and {type(example).__name__} as example"
            )
        config, example = None, config
    if precision is not None and config is not None:
        given = f"a {type(config).__name__}" if isinstance(config, Config) else repr(config)
        raise TypeError(
            f"binarize: precision must be given once, got {given} and precision={precision!r}"
        )
    is_chosen = isinstance(config, Config)
    if not isinstance(config, GraphConfig | ImageConfig | BWTAConfig):
        config = _fitting(model, config if precision is None else precision)
    if not isinstance(config, BWTAConfig):
        _check_scheme(model, config)
    elif example is not None:
        raise ValueError(
            "binarize: example must be None with a BWTAConfig, which takes inputs as "
            f"calibration, got {type(example).__name__}"
        )
    result, report = handler("binarize", type(config))(model, config)
    if not is_chosen and isinstance(config, ImageConfig):
        kinds = (nn.MultiheadAttention, BWTAAttention)
        if attention_modules(model) or any(isinstance(m, kinds) for m in model.modules()):
            text = f"{type(model).__name__} has attention, {LINEAR_ALONE}"
            report = replace(report, warnings=(*report.warnings, text))
    if example is not None:
        run_example(result, example)
    for text in report.warnings:
        warn(f"binarize: {text}")
    object.__setattr__(result, ATTRIBUTE, report)
    _log.info("binarize:\n%s", report_of(result))
    return result


def _fitting(model: nn.Module, precision: Any) -> GraphConfig | ImageConfig:
    """The configuration that fits a model."""
    if not is_for_images(model):
        return GraphConfig() if precision is None else GraphConfig(precision)
    if precision not in (None, *NAMED):
        raise ValueError(
            f"binarize: precision must be one of {list(NAMED)} in a network of images, whose "
            f"layers have one form, got {precision!r}"
        )
    return ImageConfig()


def _check_scheme(model: nn.Module, config: GraphConfig | ImageConfig) -> None:
    """Refuse the configuration of graphs for a network of images, and the other way round."""
    modules = list(model.modules())
    fitting: type[Config] = type(config)
    if any(isinstance(module, MessagePassing) for module in modules):
        fitting = GraphConfig
    elif is_for_images(model) and any(isinstance(module, nn.Conv2d) for module in modules):
        fitting = ImageConfig
    if not isinstance(config, fitting):
        layers = "graph layers" if fitting is GraphConfig else "convolutions of images"
        raise ValueError(
            f"binarize: config must be of type {fitting.__name__} for a model with {layers}, got "
            f"{type(config).__name__}"
        )


def _plain(model: Any) -> nn.Module:
    """The module tree of a model, without wrappers of ``torch.compile`` or data parallelism."""
    if not isinstance(model, nn.Module):
        got = f"the class {model.__name__}" if inspect.isclass(model) else type(model).__name__
        raise TypeError(f"binarize: model must be a torch.nn.Module, got {got}")
    model = unwrapped(model)
    kind = type(model).__name__
    if isinstance(model, Frozen):
        raise TypeError(
            f"binarize: model is frozen already, a {kind}; pass the model that was frozen"
        )
    for name, module in model.named_modules():
        where = f"model.{name}" if name else "model"
        # What a compiled module calls was settled when it was made, not by its children.
        if is_compiled(module):
            raise TypeError(
                f"binarize: {where} must not be compiled yet, got the result of torch.compile; "
                f"pass the module it was made of ({where}._orig_mod) and compile the result"
            )
        if type(module).__module__.startswith("torch.jit."):
            raise TypeError(
                f"binarize: {where} must be a module of Python code, got TorchScript ({kind}); "
                "pass the module it was scripted from"
            )
    return model


Example: TypeAlias = "Tensor | BaseData | tuple[Any, ...] | list[Any] | dict[str, Any]"
KINDS = (Tensor, BaseData, tuple, list, dict)


def is_example(value: Any) -> bool:
    """True if a value is an input of a model, not a precision or configuration."""
    return isinstance(value, KINDS)


def run_example(model: nn.Module, example: Any) -> None:
    """Call a model once, so that layers see their input, find their role and start scales.

    It runs in evaluation with gradients recorded and none computed. Modes, other buffers, cached
    graphs and the state of torch's random numbers are what they were.
    """
    if not is_example(example):
        raise TypeError(
            "binarize: example must be a Data object, a tensor, a tuple or a mapping of what the "
            f"forward takes, got {type(example).__name__}"
        )
    kind = type(model).__name__
    if not has_forward(model):
        raise ValueError(
            f"binarize: example must be None for {kind}, which has no forward; its first training "
            "batch does what an example would"
        )
    args, kwargs = _call_of(model, example)

    def call() -> None:
        with _settling(model):
            model(*args, **kwargs)

    try:
        reads = follow(model, call)
    except Exception as error:
        raise ValueError(
            f"binarize: example must be what the forward of {kind} takes, which raised "
            f"{type(error).__name__}: {error}"
        ) from error
    settle(reads)


@contextmanager
def _settling(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, except for layers and scales that learn from the example."""
    with evaluating(model), torch.enable_grad():
        for module in model.modules():
            if isinstance(module, LooksUp):
                # Its statistics and norms, too: a scale starts from what they make of the batch.
                module.train()
            if isinstance(module, ActivationQuantizer) and not module.is_set:
                module.train()  # the example starts its scale
        yield


def _call_of(model: nn.Module, example: Any) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of the forward in order, and by name."""
    if isinstance(example, Tensor):
        return [example], {}
    if isinstance(example, Mapping):
        return [], dict(example)
    if isinstance(example, tuple | list):
        return list(example), {}
    try:
        arguments = Arguments(trace_model(model)).arguments
    except NotTraced:
        arguments = _declared(model, example)
    try:
        return OwnCall(arguments).of_data(example)
    except AttributeError as error:
        raise ValueError(
            f"binarize: example must have {error}, which the forward of {type(model).__name__} "
            f"takes, got {example}; a tuple or a mapping of arguments serves as well"
        ) from error


def _declared(model: nn.Module, data: BaseData) -> list[Argument]:
    """Arguments by the signature, where there is no trace: a single one takes the data."""
    parameters = [
        parameter
        for parameter in inspect.signature(model.forward).parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    needed = [p for p in parameters if p.default is p.empty]
    if len(needed) == 1 and getattr(data, needed[0].name, None) is None:
        return [Argument("x", "features", in_data=True)]
    return [
        Argument(p.name, "input", "refuse" if p.default is p.empty else "none") for p in parameters
    ]
