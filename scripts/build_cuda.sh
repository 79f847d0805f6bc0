#!/usr/bin/env bash
# Builds the CUDA library with nvcc alone, where the installed torch has no CUDA: operators use torch's stable ABI, so
# the result loads into any torch of the supported range that has CUDA. `pip install .` does the same in one go where
# torch has CUDA.
# Usage: scripts/build_cuda.sh OUTPUT_DIR [ARCHITECTURE...]      architectures: 80 and 90a unless given
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
output=${1:?usage: build_cuda.sh OUTPUT_DIR [ARCHITECTURE...]}
shift
architectures=("${@:-80}")
[ "$#" -gt 0 ] || architectures=(80 90a)
mkdir -p "$output/objects"
torch=$(python -c 'import torch; print(torch.__path__[0])')

flags=(-std=c++17 -O3 --fmad=false --expt-relaxed-constexpr -cudart shared -DUSE_CUDA -DPy_LIMITED_API=0x030a0000
  -DTORCH_TARGET_VERSION=0x020b000000000000 -DTORCH_STABLE_ONLY
  "-I$root/csrc" -isystem "$torch/include"
  -Xcompiler "-fPIC,-fvisibility=hidden,-Wall,-Wextra,-ffile-prefix-map=$root/=")
for architecture in "${architectures[@]}"; do
  flags+=(-gencode "arch=compute_$architecture,code=sm_$architecture")
  # Hopper's own instructions are there.
  [ "$architecture" != 90a ] || flags+=(-DBITGNN_HOPPER)
done
# PTX of the first one, for devices that come later.
flags+=(-gencode "arch=compute_${architectures[0]},code=compute_${architectures[0]}")

# Whether an object is missing, of another copy of the sources, or older than one of the files it was made of.
is_stale() {
  local object=$1 source=$2 file
  [ -e "$object" ] && grep -qsF " $source " "$object.d" || return 0
  for file in $(sed -e '1s/^[^:]*://' -e 's/\\$//' "$object.d"); do
    [ "$object" -nt "$file" ] || return 0
  done
  return 1
}

compile() {
  local source=$1 object=$2
  if ! is_stale "$object" "$source"; then return; fi
  echo "compiling ${source#"$root/"}"
  nvcc "${flags[@]}" -MMD -MF "$object.d" -c "$source" -o "$object"
}

objects=()
jobs=0
for source in $(find "$root"/csrc/*/cuda -name '*.cu' -o -name '*.cpp' | sort); do
  object=${source#"$root/csrc/"}
  object=$output/objects/${object//\//-}.o
  objects+=("$object")
  compile "$source" "$object" &
  jobs=$((jobs + 1))
  if [ "$jobs" -ge "${MAX_JOBS:-2}" ]; then
    wait -n
    jobs=$((jobs - 1))
  fi
done
while [ "$jobs" -gt 0 ]; do
  wait -n
  jobs=$((jobs - 1))
done
# libtorch is named although nothing of a torch without CUDA is needed from it: where torch has CUDA, it brings that.
nvcc -shared -cudart shared -o "$output/_C_cuda.abi3.so" "${objects[@]}" -L"$torch/lib" \
  -Xlinker --no-as-needed -ltorch -ltorch_cpu -Xlinker -s
ls -l "$output/_C_cuda.abi3.so"
