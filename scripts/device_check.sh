#!/usr/bin/env bash
# Runs all CUDA tests (plainly and under compute-sanitizer), the CUDA benchmark and the hardware counters of chosen cases
# on a machine with a GPU and leaves their records in scripts/results. bitgnn must be importable with its CUDA library; BITGNN_DATA names the data folder.
# Usage: scripts/device_check.sh [OUTPUT_DIR]
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
output=${1:-scripts/results}
status=0
python3 scripts/check_cuda.py --output "$output/cuda_tests.json" || status=1
python3 scripts/bench_ops.py --device cuda --output "$output/ops_cuda.json" || status=1
python3 scripts/bench_wins.py --output "$output/wins_cuda.json" || status=1
python3 scripts/profile_cuda.py --output "$output/profile_cuda.json" || status=1
exit "$status"
