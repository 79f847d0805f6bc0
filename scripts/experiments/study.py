"""Studies of the recipe: forms by what they change, and what distill() is given for each.

A form is a precision, what hidden channels are multiplied by, and fields: those of a recipe, or a
kind of variant and its name (``bin:1:surrogate=reste``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from variants import VARIANTS

__all__ = ["STUDIES", "arguments_of", "changed"]

RECIPE = "bin"
FIELDS = (
    RECIPE, "bin:1:teacher_weight=0", "bin:1:teacher_weight=0.6", "bin:1:teacher_weight=1",
    "bin:1:dropout=0", "bin:1:dropout=1", "bin:1:sharpen=1", "bin:1:smooth=False",
    "bin:1:schedule=constant", "bin:1:learning_rate=0.005", "bin:1:learning_rate=0.02",
    "bin:1:weight_decay=0.0005", "bin:1:epochs=400", "full", "T", "bin:2",
)  # fmt: skip
"""The recipe, then it with one field changed, then other precisions and widths."""
ALSO = {
    "stages": ("bin:1:init=teacher:stages=full",),
    "depth": ("bin:2", "bin:4"),
    "arithmetic": ("FBB+BBF", "full"),
    "loss": ("bin:1:teacher_weight=0", "bin:1:sharpen=1", "bin:1:sharpen=20"),
    "rate": ("bin:1:schedule=constant", "bin:1:learning_rate=0.03", "bin:1:weight_decay=0.0005"),
}
"""Forms of a kind beside its variants."""
NEEDS = {"decay": ":weight_decay=0.0005", "loss=logits": ":smooth=False"}
"""Fields without which a variant says nothing."""
AGAIN = (
    RECIPE, "bin:1:init=teacher", "bin:1:surrogate=ede-weights", "bin:1:surrogate=reste",
    "bin:1:sharpen=20",
)  # fmt: skip
"""The best of many variants at one seed, to be tried with seeds that did not choose them."""
ORDER = ("surrogate", "init", "norm", "loss", "rate", "stages", "depth", "decay", "arithmetic")
"""Kinds of variants, those first of which more is to be learnt."""


def _forms(kind: str) -> tuple[str, ...]:
    """The recipe, whose teacher the others have, and all forms of a kind."""
    fields = (f"{kind}={name}" for name in VARIANTS[kind])
    forms = (f"bin:1:{f}{NEEDS.get(kind, NEEDS.get(f, ''))}" for f in fields)
    return RECIPE, *forms, *ALSO.get(kind, ())


STUDIES: dict[str, dict[str, tuple[str, ...]]] = {
    "recipe": {"recipe": FIELDS},
    "variants": {kind: _forms(kind) for kind in ORDER},
    "again": {"again": AGAIN},
}
"""Forms by the study's name and their kind; those of a kind share a teacher."""


def _fields(form: str) -> dict[str, str]:
    return dict(field.split("=") for field in form.split(":")[2:])


def arguments_of(form: str) -> dict[str, Any]:
    """Arguments of :func:`bitgnn.distill` for a form."""
    precision, *more = form.split(":")
    factor = float(more[0]) if more else 1.0
    recipe = {name: value for name, value in _fields(form).items() if name not in VARIANTS}
    return {"precision": precision, "widen": None if factor == 1 else factor, "recipe": recipe}


@contextmanager
def changed(form: str) -> Iterator[None]:
    """The context of a form's variants.

    Raises:
        KeyError: a kind of variants has none of that name.
    """
    with ExitStack() as stack:
        for name, value in _fields(form).items():
            if name in VARIANTS:
                stack.enter_context(VARIANTS[name][value]())
        yield
