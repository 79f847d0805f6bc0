"""Times mini-batches through frozen models and PyG's: JSON in scripts/results."""

from bitgnn.bench.stream import stream_main

if __name__ == "__main__":
    raise SystemExit(stream_main())
