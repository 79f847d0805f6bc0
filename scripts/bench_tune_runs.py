"""Times `bitgnn tune` as a process and judges what it recommends: JSON in scripts/results."""

from bitgnn.bench.tune_runs import tune_runs_main

if __name__ == "__main__":
    raise SystemExit(tune_runs_main())
