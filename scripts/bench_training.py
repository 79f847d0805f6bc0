"""Measures what training the binary forms costs beside full precision; see --help."""

from pathlib import Path

from bitgnn.train.cost import cost_main

if __name__ == "__main__":
    raise SystemExit(cost_main(root=Path(__file__).resolve().parent.parent))
