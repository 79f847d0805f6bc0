"""Tables of calls that must fail, each with the kind of its error and a pattern of its message."""

import builtins
import re
from typing import Any

from bitgnn._library import library_info

__all__ = ["check_wrong_calls"]

# `call -> KindOfError: pattern`, the arrow perhaps on a line of its own, long patterns on several.
CASE = re.compile(
    r"^(?P<call>\S(?:.|\n(?! {4}-> ))*?)\s+-> (?P<kinds>[\w|]+): (?P<pattern>.*(?:\n {8}.*)*)", re.M
)


def check_wrong_calls(table: str, names: dict[str, Any]) -> None:
    """Make every call of a table; all that do not fail as they must are reported together.

    Calls that end in RuntimeError are left out where no library is loaded: raw operators check
    their arguments there alone.

    Args:
        table: the calls.
        names: what the calls speak of, the globals of the test.
    """
    cases = list(CASE.finditer(table))
    assert len(cases) == table.count("-> ")
    problems = []
    for case in cases:
        call, kinds = case["call"], case["kinds"]
        pattern = re.sub(r"\n {8}", " ", case["pattern"])
        if kinds == "RuntimeError" and library_info().cpu_library is None:
            continue
        try:
            eval(f"({call})", names)
        except tuple(getattr(builtins, kind) for kind in kinds.split("|")) as error:
            if re.search(pattern, str(error)) is None:
                problems.append(f"{call}: {error}")
        except Exception as error:
            problems.append(f"{call}: {error!r}")
        else:
            problems.append(f"{call}: no error")
    assert not problems, "\n".join(problems)
