"""Trains the predictor of layout, method and executor on scripts/results/tune_*.json."""

from bitgnn.tune.predictor_command import train_predictor_main

if __name__ == "__main__":
    raise SystemExit(train_predictor_main())
