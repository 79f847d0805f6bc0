#!/usr/bin/env bash
# Builds the CUDA library with nvcc alone, where the installed torch has no CUDA: operators use torch's stable ABI, so
# the result loads into any torch of the supported range that has CUDA. `pip install .` does the same in one go where
# torch has CUDA.
# Usage: scripts/build_cuda.sh OUTPUT_DIR [TARGET...]      targets: 8.0+PTX and 9.0 unless given
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
output=${1:?usage: build_cuda.sh OUTPUT_DIR [TARGET...]}
shift
mkdir -p "$output/objects"
torch=$(python -c 'import torch; print(torch.__path__[0])')
# Not in one step: a wrong target must end this script.
listing=$(python "$root/csrc/flags.py" "$@")
mapfile -t flags <<<"$listing"
flags+=(-cudart shared -isystem "$torch/include")

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
sources=$(python "$root/csrc/flags.py" --sources)
for source in $sources; do
  source=$root/$source
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
mapfile -t link < <(python "$root/csrc/flags.py" --link)
nvcc -shared -cudart shared "${link[@]/#-Wl,/-Xlinker=}" -o "$output/_C_cuda.abi3.so" "${objects[@]}" -L"$torch/lib" \
  -Xlinker --no-as-needed -ltorch -ltorch_cpu
ls -l "$output/_C_cuda.abi3.so"
