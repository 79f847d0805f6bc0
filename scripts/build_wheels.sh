#!/usr/bin/env bash
# Builds what a release publishes: the archive of sources and, from it, one manylinux wheel with the CPU and the CUDA
# library, for every CPython from 3.10 and every torch of the supported range, with CUDA or without. Tells which glibc
# the wheel needs, that of the machine it is built on at most, and which kernels most bytes belong to.
# Needs g++, nvcc and `pip install '.[dev]'`; torch need not have CUDA. BITGNN_BUILD=cpu leaves the CUDA library out.
# Usage: scripts/build_wheels.sh OUTPUT_DIR [TARGET...]      targets as for build_cuda.sh
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
output=${1:?usage: build_wheels.sh OUTPUT_DIR [TARGET...]}
shift
most_bytes=$((30 * 1024 * 1024))
mkdir -p "$output"
output=$(cd "$output" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

(cd "$root" && BITGNN_BUILD=none python -m build --sdist --no-isolation --skip-dependency-check --outdir "$work/dist" .) \
  >"$work/log" 2>&1 || { tail -50 "$work/log" && exit 1; }
# Unpacked where it was before, with the times of the files, so that build_cuda.sh compiles only what has changed.
rm -rf "$output/source"
mkdir "$output/source"
tar -C "$output/source" --strip-components 1 -xf "$work"/dist/*.tar.gz
BITGNN_BUILD=cpu python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work" "$work"/dist/*.tar.gz

python -m wheel unpack --dest "$work/tree" "$work"/bitgnn-*.whl >/dev/null
folder=("$work"/tree/*)
if [ "${BITGNN_BUILD:-cuda}" != cpu ]; then
  "$output/source/scripts/build_cuda.sh" "$output/cuda" "$@"
  python "$root/scripts/kernel_sizes.py" "$output/cuda/objects"
  cp "$output/cuda/_C_cuda.abi3.so" "${folder[0]}/bitgnn/"
fi
# The wheel's list of files has their hashes: packed anew.
rm "$work"/bitgnn-*.whl
python -m wheel pack --dest-dir "$work" "${folder[0]}" >/dev/null

# torch's libraries and CUDA's runtime come with the torch wheel and are loaded by then; none is copied into this one.
auditwheel repair --exclude 'libtorch*.so*' --exclude 'libc10*.so*' --exclude 'libcudart.so.*' \
  --wheel-dir "$work/dist" "$work"/bitgnn-*.whl
abi3audit --strict "$work"/dist/*.whl
for wheel in "$work"/dist/*.whl; do
  [ "$(stat -c %s "$wheel")" -le "$most_bytes" ] ||
    { echo "$(basename "$wheel") is larger than $most_bytes bytes" >&2 && exit 1; }
done
mv "$work"/dist/* "$output"
ls -l "$output"/*.whl "$output"/*.tar.gz
