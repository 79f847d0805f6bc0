"""Runs PyG's own tests of graph layers against the layers here, in several precisions.

The tests are read in place: none is copied, and nothing is written next to them.
This module is also the pytest plugin that puts bitgnn's layers in the place of PyG's.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bitgnn.measure.report import environment, write_json

LAYERS = ("GCNConv", "SAGEConv", "GraphConv", "GATConv", "GATv2Conv")
FILES = (
    "test_gcn_conv.py", "test_sage_conv.py", "test_graph_conv.py", "test_gat_conv.py",
    "test_gatv2_conv.py",
)  # fmt: skip
FLOAT_LAYERS = ("TransformerConv",)
FLOAT_FILES = ("test_transformer_conv.py",)
"""Layers that know no letters, for precision fp32 alone."""
FOLDERS = ("test/nn/conv", "tests/nn/conv")
PRECISIONS = ("fp32", "FBF+FBF", "FBB+BBF", "FBB+BBB")
"""Letters, whose layers have the tensors of PyG's; those of "bin" and "full" depend on the data."""
OUTPUT = Path("pyg_tests.json")
TIMEOUT_SECONDS = 1800
PLUGIN = Path(__file__).stem
PRECISION_VARIABLE = "BITGNN_PYG_TESTS_PRECISION"

EXCEPTIONS = {
    "test_gcn_conv_with_decomposed_layers": (
        "compiles the layer with torch.jit.script, which knows no custom gradients; layers in "
        "precision fp32 compile, binary ones refuse with a message"
    ),
}
"""Tests that a binary precision need not pass, and why. They run all the same."""
FULL_EXCEPTIONS = dict.fromkeys(
    ("test_gat_conv", "test_gatv2_conv"),
    "TorchScript refuses the condition on return_attention_weights in PyG's own forward",
)
"""Tests that PyG's layers themselves fail in full runs."""


@dataclass
class Run:
    """Outcome of PyG's tests in one precision.

    Attributes:
        precision: What the layers were constructed with.
        full: Whether PyG's slower assertions (TorchScript) ran too.
        passed: Names of tests that passed.
        failed: Test to first line of its failure.
        excepted: Those of :data:`EXCEPTIONS` that failed, with the reason.
        skipped: Test to reason.
        torch_sparse: Whether ``torch_sparse`` was installed, which some assertions depend on.
    """

    precision: str
    full: bool
    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    excepted: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    torch_sparse: bool = find_spec("torch_sparse") is not None

    def __str__(self) -> str:
        kind = f"{self.precision}{', full' if self.full else ''}"
        counts = f"{len(self.passed)} passed, {len(self.failed)} failed"
        rest = f"{len(self.excepted)} excepted, {len(self.skipped)} skipped"
        return f"{kind}: {counts}, {rest}"


def pytest_configure(config: Any) -> None:
    """Hook of pytest: from here on ``torch_geometric.nn`` has bitgnn's layers."""
    import torch_geometric.nn

    import bitgnn.nn

    precision = os.environ[PRECISION_VARIABLE]
    for name in (*LAYERS, *(FLOAT_LAYERS if precision == "fp32" else ())):
        layer = getattr(bitgnn.nn, name)
        constructor = layer.__init__
        parameters = inspect.signature(constructor).parameters.values()
        constructor.__defaults__ = tuple(
            precision if parameter.name == "precision" else parameter.default
            for parameter in parameters
            if parameter.default is not inspect.Parameter.empty
        )
        setattr(torch_geometric.nn, name, layer)


def source_files(source: Path, has_floats: bool = True) -> list[Path]:
    """The test files of the layers in a PyG source tree."""
    folders = [source / folder for folder in FOLDERS if (source / folder).is_dir()]
    if not folders:
        raise FileNotFoundError(f"{source} holds neither of {list(FOLDERS)}: no PyG source tree")
    files = [folders[0] / name for name in (*FILES, *(FLOAT_FILES if has_floats else ()))]
    missing = [str(file) for file in files if not file.is_file()]
    if missing:
        raise FileNotFoundError(f"PyG's tests are missing: {missing}")
    return files


def run_tests(source: Path, precision: str, full: bool = False) -> Run:
    """Runs the tests in a process of their own."""
    files = source_files(source.resolve(), precision == "fp32")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        paths = [str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")]
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "--noconftest", "--import-mode=importlib"),
                *("-p", PLUGIN, "-p", "no:cacheprovider", "-c", os.devnull),
                *(f"--rootdir={folder}", f"--junitxml={report}", *map(str, files)),
            ],
            cwd=folder,
            env={
                **os.environ,
                PRECISION_VARIABLE: precision,
                "FULL_TEST": "1" if full else "0",
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        if not report.is_file():
            raise RuntimeError(f"pytest wrote no report:\n{done.stdout}\n{done.stderr}")
        return _read_report(report, Run(precision, full))


def _read_report(report: Path, run: Run) -> Run:
    """Sort the cases of a JUnit report into ``run``."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = case.get("name", "")
        problem = case.find("failure")
        problem = case.find("error") if problem is None else problem
        skip = case.find("skipped")
        known = {} if run.precision == "fp32" else EXCEPTIONS
        known = {**known, **FULL_EXCEPTIONS} if run.full else known
        reason = known.get(name.partition("[")[0])
        if problem is not None and reason is not None:
            run.excepted[name] = reason
        elif problem is not None:
            run.failed[name] = problem.get("message", "").partition("\n")[0]
        elif skip is not None:
            run.skipped[name] = skip.get("message", "")
        else:
            run.passed.append(name)
    return run


def _source_version(source: Path) -> str | None:
    """Version that a PyG source tree names itself."""
    file = source / "torch_geometric" / "__init__.py"
    if not file.is_file():
        return None
    found = re.search(r"__version__ = '([^']+)'", file.read_text(encoding="utf-8"))
    return found[1] if found else None


def _merged(output: Path, record: dict[str, Any]) -> dict[str, Any]:
    """The record with the runs of the file that were made with the other set of packages."""
    if not output.is_file():
        return record
    held = json.loads(output.read_text(encoding="utf-8")).get("runs", [])
    sparse = {run["torch_sparse"] for run in record["runs"]}
    kept = [run for run in held if run["torch_sparse"] not in sparse]
    return {**record, "runs": sorted([*record["runs"], *kept], key=lambda r: r["torch_sparse"])}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs every precision and writes the summary; the exit status, 1 where a test failed."""
    parser = argparse.ArgumentParser(description="Runs PyG's tests of graph layers on bitgnn's.")
    parser.add_argument("--pyg-source", type=Path, required=True, help="PyG source tree")
    parser.add_argument(
        "--precision", nargs="+", default=list(PRECISIONS), help="precisions to run (default: all)"
    )
    parser.add_argument("--output", type=Path, default=OUTPUT, help=f"JSON file ({OUTPUT})")
    arguments = parser.parse_args(argv)
    if find_spec("pytest") is None:
        parser.error("pytest is not installed: pip install 'bitgnn[test]'")
    try:
        source_files(arguments.pyg_source)
    except FileNotFoundError as error:
        parser.error(f"--pyg-source: {error}")
    todo = [(precision, False) for precision in arguments.precision]
    # TorchScript, which PyG tests in full runs only, is for float layers.
    todo += [(precision, True) for precision in arguments.precision if precision == "fp32"]
    runs = []
    for precision, full in todo:
        runs.append(run_tests(arguments.pyg_source, precision, full))
        print(runs[-1], flush=True)
        for name, problem in runs[-1].failed.items():
            print(f"  {name}: {problem}")
    record = {
        "benchmark": "pyg_tests",
        "environment": environment(Path(__file__).resolve().parents[1]),
        "pyg_source": _source_version(arguments.pyg_source),
        "exceptions": {**EXCEPTIONS, **FULL_EXCEPTIONS},
        "runs": [asdict(run) for run in runs],
    }
    write_json(arguments.output, _merged(arguments.output, record))
    print(f"written: {arguments.output}")
    return int(any(run.failed for run in runs))


if __name__ == "__main__":
    raise SystemExit(main())
