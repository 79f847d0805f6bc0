"""Modules of scripts/experiments/, which import one another by bare names."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

__all__ = ["kept_runs", "plain_loop"]

FOLDER = str(Path(__file__).resolve().parents[1] / "experiments")
if FOLDER not in sys.path:
    sys.path.append(FOLDER)
plain_loop: Any = importlib.import_module("plain_loop")
kept_runs: Any = importlib.import_module("kept_runs")
