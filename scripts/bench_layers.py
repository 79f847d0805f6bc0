"""Times a training step of binary layers against PyG's on Cora: JSON in scripts/results."""

from bitgnn.bench.layers import layers_main

if __name__ == "__main__":
    raise SystemExit(layers_main())
