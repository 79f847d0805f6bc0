"""Trains encoders on SST-2 and CoLA and a decoder, in floats, binary and BWTA; see --help."""

from pathlib import Path

from experiments.text.command import main

if __name__ == "__main__":
    raise SystemExit(main(root=Path(__file__).resolve().parent.parent))
