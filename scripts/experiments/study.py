"""Studies of the recipe: forms by what they change, and a student of a form.

A form is a precision, what hidden channels are multiplied by, and fields: those of a recipe, or a
kind of variant and its name (``bin:1:surrogate=reste``).
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from torch import nn
from variants import VARIANTS

import bitgnn
from bitgnn.distillation.result import Distilled

__all__ = ["STUDIES", "distilled"]

RECIPE = "bin"
FIELDS = (
    RECIPE, "bin:1:teacher_weight=0", "bin:1:teacher_weight=0.6", "bin:1:teacher_weight=1",
    "bin:1:dropout=0", "bin:1:dropout=1", "bin:1:sharpen=1", "bin:1:smooth=False",
    "bin:1:schedule=constant", "bin:1:learning_rate=0.005", "bin:1:learning_rate=0.02",
    "bin:1:weight_decay=0.0005", "bin:1:epochs=400", "full", "TBF+TBF", "bin:2",
)  # fmt: skip
"""The recipe, then it with one field changed, then other precisions and widths."""
ALSO = {
    "stages": ("bin:1:init=teacher:stages=full",),
    "depth": ("bin:2", "bin:4"),
    "form": ("FBB+BBF", "full"),
    "lesson": ("bin:1:teacher_weight=0", "bin:1:sharpen=1", "bin:1:sharpen=20"),
    "rate": ("bin:1:schedule=constant", "bin:1:learning_rate=0.03", "bin:1:weight_decay=0.0005"),
}
"""Forms of a kind beside its variants."""
NEEDS = {"decay": ":weight_decay=0.0005", "lesson=logits": ":smooth=False"}
"""Fields without which a variant says nothing."""
ORDER = ("surrogate", "init", "norm", "lesson", "rate", "stages", "depth", "decay", "form")
"""Kinds of variants, those first of which more is to be learnt."""


def _forms(kind: str) -> tuple[str, ...]:
    """The recipe, whose teacher the others have, and all forms of a kind."""
    fields = (f"{kind}={name}" for name in VARIANTS[kind])
    forms = (f"bin:1:{f}{NEEDS.get(kind, NEEDS.get(f, ''))}" for f in fields)
    return RECIPE, *forms, *ALSO.get(kind, ())


STUDIES: dict[str, tuple[tuple[str, ...], ...]] = {
    "recipe": (FIELDS,),
    "variants": tuple(map(_forms, ORDER)),
}
"""Groups of forms by the study's name; a group's forms share a teacher."""


def distilled(model: nn.Module, data: Any, form: str, **options: Any) -> Distilled:
    """A student of a form.

    Args:
        model: as of :func:`bitgnn.distill`.
        data: as of it.
        form: see above.
        options: further arguments.

    Raises:
        KeyError: a kind of variants has none of that name.
        DistillError: as :func:`bitgnn.distill`.
    """
    precision, *more = form.split(":")
    factor = float(more[0]) if more else 1.0
    fields = dict(field.split("=") for field in more[1:])
    with ExitStack() as stack:
        for kind in [field for field in fields if field in VARIANTS]:
            stack.enter_context(VARIANTS[kind][fields.pop(kind)]())
        widen = None if factor == 1 else factor
        return bitgnn.distill(model, data, precision, widen=widen, recipe=fields, **options)
