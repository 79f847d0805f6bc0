"""Trains the MLP, VGG and ResNet-14 of the papers on real images, binary and not; see --help."""

from pathlib import Path

from experiments.images.command import main

if __name__ == "__main__":
    raise SystemExit(main(root=Path(__file__).resolve().parent.parent))
