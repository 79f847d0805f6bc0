"""Fake kernels told from the names of what they read: the reference's signature binds the rest."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch

from bitgnn.ops._shapes import check_shapes

__all__ = ["Fake", "by_name", "fakes_like", "on_one_device"]

Fake = Callable[..., Any]


def by_name(reference: Callable[..., Any], result: Fake) -> Fake:
    """A fake kernel that takes what ``reference`` takes, in shapes that fit.

    Args:
        reference: its signature is the operator's schema.
        result: makes the results out of the arguments that it names, defaults filled in.
    """
    signature = inspect.signature(reference)
    wanted = tuple(inspect.signature(result).parameters)
    missing = [name for name in wanted if name not in signature.parameters]
    if missing:
        raise TypeError(f"{reference.__name__} has no {missing}, which its fake reads")

    def fake(*arguments: Any, **keywords: Any) -> Any:
        bound = signature.bind(*arguments, **keywords)
        bound.apply_defaults()
        check_shapes(reference.__name__, bound.arguments)
        return result(*(bound.arguments[name] for name in wanted))

    return fake


def on_one_device(operator: str, fake: Fake) -> Fake:
    """The fake, for operands that are all on one device.

    With one operand on the meta device fakes run in place of kernels, and would return memory of
    another operand's device that nothing was written to.

    Args:
        operator: for the message.
        fake: what is called then.
    """

    def checked(*arguments: Any, **keywords: Any) -> Any:
        devices = {
            value.device
            for value in (*arguments, *keywords.values())
            if isinstance(value, torch.Tensor)
        }
        if len(devices) > 1:
            found = " and ".join(sorted(map(str, devices)))
            raise RuntimeError(f"{operator}: tensors must be on one device, got {found}")
        return fake(*arguments, **keywords)

    return checked


def fakes_like(
    references: dict[str, Callable[..., Any]], results: Iterable[tuple[Iterable[str], Fake]]
) -> dict[str, Fake]:
    """Fake kernel of each operator.

    Args:
        references: function of each operator.
        results: names of operators and what makes their results.
    """
    return {name: by_name(references[name], result) for names, result in results for name in names}
