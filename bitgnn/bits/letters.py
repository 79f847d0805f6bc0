"""The table of letters: what each stands for, and where in an operator's name it may stand."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple


class Letter(NamedTuple):
    """A row of :data:`LETTERS`.

    Attributes:
        reads: the values that a product of this activation, or with these weights, takes.
        bits: of one value.
        products: letters of weights that an activation of this letter is multiplied by.
        sums: letters of adjacencies that sum values of this letter.
        is_result: an operator may hand values of this letter on.
        kind: prefix of the kinds of values whose activations are of this letter, see
            :class:`bitgnn.convert.network.values.Value`.
        level: largest integer that a learnt scale turns floats into; 0 without one.
        hint: where the letter stands, for the message about letters that do not fit.
    """

    reads: str
    bits: int
    products: str = ""
    sums: str = ""
    is_result: bool = False
    kind: str = ""
    level: int = 0
    hint: str = ""


LETTERS = {
    "F": Letter("floats", 32, products="FBI", sums="FB", is_result=True),
    "B": Letter("signs", 1, products="FB", sums="FB", is_result=True),
    "T": Letter(
        "ternary", 2, products="B", sums="B", kind="ternary_", level=1,
        hint="T stands in front of B alone, as in 'TBF'",
    ),
    "I": Letter("rows", 8, hint="I stands behind F alone, as in 'FIB'"),
}  # fmt: skip


def pattern(place: Literal["products", "sums"], leaves_out: str = "") -> re.Pattern[str]:
    """The three letters of a product or of a sum, without some letters."""
    known = {a: re.sub(f"[{leaves_out}]" if leaves_out else "(?!)", "", getattr(row, place))
             for a, row in LETTERS.items()}  # fmt: skip
    results = "".join(letter for letter, row in LETTERS.items() if row.is_result)
    return re.compile("|".join(f"{a}[{b}][{results}]" for a, b in known.items() if b))


def hint(letters: str) -> str:
    """Where the last of the letters that are bound to a place stands, in brackets, or nothing."""
    hints = [row.hint for letter, row in LETTERS.items() if row.hint and letter in letters]
    return f" ({hints[-1]})" if hints else ""
