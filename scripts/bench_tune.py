"""Holds the tuner's choices against recordings of every plan: JSON and chart in scripts/results."""

from bitgnn.bench.tune import tune_bench_main

if __name__ == "__main__":
    raise SystemExit(tune_bench_main())
