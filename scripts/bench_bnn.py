"""Times binary convolutions and networks: JSON, CSV and chart in scripts/results."""

from bitgnn.bench.bnn_command import bnn_main

if __name__ == "__main__":
    raise SystemExit(bnn_main())
