"""The command `bitgnn`: demo, train, distill, tune and doctor.

Exit statuses: 0 done; 1 something that the one line printed says how to mend; 2 a mistyped command;
3 `tune` found no plan that keeps the limits; 130 interrupted by Ctrl-C.
"""

from bitgnn.cli import experiments, precision, system  # each adds its commands, in this order
from bitgnn.cli.base import INTERRUPTED, LIMITS_MISSED, OWN_PROCESS, app, guard, main

__all__ = [
    "INTERRUPTED", "LIMITS_MISSED", "OWN_PROCESS", "app", "experiments", "guard", "main",
    "precision", "system",
]  # fmt: skip
