"""Fake kernels told from the names of what they read: the reference's signature binds the rest."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["Fake", "by_name", "fakes_like"]

Fake = Callable[..., Any]


def by_name(reference: Callable[..., Any], result: Fake) -> Fake:
    """A fake kernel that takes what ``reference`` takes.

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
        return result(*(bound.arguments[name] for name in wanted))

    return fake


def fakes_like(
    references: dict[str, Callable[..., Any]], results: Iterable[tuple[Iterable[str], Fake]]
) -> dict[str, Fake]:
    """Fake kernel of each operator.

    Args:
        references: function of each operator.
        results: names of operators and what makes their results.
    """
    return {name: by_name(references[name], result) for names, result in results for name in names}
