"""Times BWTA layers (binary weights, ternary activations): JSON, CSV, chart in scripts/results."""

from bitgnn.bench.bwta_command import bwta_main

if __name__ == "__main__":
    raise SystemExit(bwta_main())
