"""Times whole frozen models against PyG's: JSON, CSV and chart in scripts/results."""

from bitgnn.bench.models_command import models_main

if __name__ == "__main__":
    raise SystemExit(models_main())
