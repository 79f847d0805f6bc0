#!/usr/bin/env bash
# Tries a wheel as a user would, in a new virtual environment and outside of any checkout: what it holds, which libraries
# are loaded, `bitgnn doctor`, operators and a frozen model on the CPU and on a GPU where there is one, `bitgnn demo`.
# Packages come from pip's index; with --system-site-packages, which needs no index, from the Python that runs this and
# from PYTHONPATH.
# Usage: scripts/check_wheel.sh [--system-site-packages] WHEEL
set -euo pipefail

options=()
if [ "${1:-}" = --system-site-packages ]; then
  options=(--no-deps --no-index)
  shift
fi
wheel=$(realpath -e "${1:?usage: check_wheel.sh [--system-site-packages] WHEEL}")
python=$(command -v python3 || command -v python)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# The libraries of torch and CUDA come with torch.
"$python" - "$wheel" <<'PYTHON'
import sys
from pathlib import PurePath
from zipfile import ZipFile

libraries = {name for name in ZipFile(sys.argv[1]).namelist() if ".so" in PurePath(name).name}
print(*sorted(libraries), sep="\n")
unknown = libraries - {"bitgnn/_C_cpu.abi3.so", "bitgnn/_C_cuda.abi3.so"}
if unknown or not libraries:
    raise SystemExit(f"a wheel holds the package's own libraries alone, got {sorted(libraries)}")
PYTHON

# Python's own option would leave out the packages of a virtual environment that runs this.
"$python" -m venv --without-pip venv
if [ ${#options[@]} -gt 0 ]; then
  "$python" -c 'import os, sys
print(*(p for p in sys.path if p.endswith("-packages")), sep="\n")
print(*os.environ.get("PYTHONPATH", "").split(":"), sep="\n")' \
    >"$(venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/outer.pth"
fi
unset PYTHONPATH BITGNN_CUDA_LIBRARY BITGNN_DISABLE_BINARY
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --force-reinstall \
  "${options[@]}" "$wheel"
venv/bin/bitgnn --version
venv/bin/bitgnn doctor
venv/bin/bitgnn summary gcn-digits

venv/bin/python - "$wheel" <<'PYTHON'
import sys
from pathlib import Path
from zipfile import ZipFile

import torch
from torch_geometric.nn.models import GCN

import bitgnn
from bitgnn._library import library_info
from bitgnn.ops import bmm, bspmm, ternary

package = Path(bitgnn.__file__).parent
assert package.is_relative_to(Path.cwd() / "venv"), package
info = library_info()
assert info.cpu_library == package / "_C_cpu.abi3.so", info
has_cuda = "bitgnn/_C_cuda.abi3.so" in ZipFile(sys.argv[1]).namelist()
expected = package / "_C_cuda.abi3.so" if has_cuda and torch.version.cuda else None
assert info.cuda_library == expected, info
maps = Path("/proc/self/maps").read_text().splitlines()
runtimes = {line.split(maxsplit=5)[5] for line in maps if "libcudart" in line}
assert len(runtimes) <= 1, f"CUDA's runtime is loaded {len(runtimes)} times: {runtimes}"

torch.manual_seed(0)
x, weight = torch.randn(300, 70), torch.randn(40, 70)
edges = torch.randint(300, (2, 2000))
model = bitgnn.binarize(GCN(70, 32, 2, 7), example=(x, edges)).eval()


def results(device):
    """Products, aggregations and a frozen model, called three times so that it is recorded."""
    bits = bitgnn.BitTensor.from_float(x.to(device))
    weights = bitgnn.BitTensor.from_float(weight.to(device))
    adjacency = bitgnn.BitAdjacency.from_edge_index(edges.to(device), 300)
    frozen = bitgnn.freeze(model).to(device)
    *_, logits = (frozen(x.to(device), edges.to(device)) for _ in range(3))
    yield bmm.bbf(bits, weights, scale=False)
    yield bmm.bbb(bits, weights).to_float()
    yield bspmm.bbf(bits, adjacency, integer=True)
    yield bspmm.bbb(bits, adjacency).to_float()
    yield ternary.linear(x.to(device), weights, 0.5)
    yield logits


computed = [value.cpu() for value in results("cpu")]
assert torch.equal(computed[0], x.sign() @ weight.sign().t())
if torch.cuda.is_available():
    assert expected is None or runtimes, "CUDA's runtime is not loaded"
    for here, there in zip(computed, results("cuda"), strict=True):
        assert there.is_cuda
        torch.testing.assert_close(here, there.cpu(), rtol=1e-5, atol=1e-5)
print("operators and a frozen model are right on", *["the GPU and"] * torch.cuda.is_available(), "the CPU")
PYTHON

venv/bin/bitgnn demo --seeds 1 --output demo
echo "$(basename "$wheel") works"
