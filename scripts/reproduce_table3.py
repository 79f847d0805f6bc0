"""Reproduces the accuracies of the paper's table 3, or the second table; see --help."""

from pathlib import Path

from experiments.accuracy.command import main

if __name__ == "__main__":
    raise SystemExit(main(root=Path(__file__).resolve().parent.parent))
