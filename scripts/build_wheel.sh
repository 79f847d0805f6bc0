#!/usr/bin/env bash
# Builds one wheel with the CPU and the CUDA library where nvcc is at hand but torch has no CUDA; it serves every
# CPython from 3.10 and every torch of the supported range, with CUDA or without.
# Usage: scripts/build_wheel.sh OUTPUT_DIR [TARGET...]      targets as for build_cuda.sh
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
output=${1:?usage: build_wheel.sh OUTPUT_DIR [TARGET...]}
shift
mkdir -p "$output"
output=$(cd "$output" && pwd)
"$root/scripts/build_cuda.sh" "$output/cuda" "$@"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
BITGNN_BUILD=cpu python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work" "$root"
# The wheel's list of files has their hashes: unpacked, added to and packed anew.
python -m wheel unpack --dest "$work/tree" "$work"/bitgnn-*.whl
folder=("$work"/tree/*)
cp "$output/cuda/_C_cuda.abi3.so" "${folder[0]}/bitgnn/"
python -m wheel pack --dest-dir "$output" "${folder[0]}"
ls -l "$output"/*.whl
