"""Breaks the package in many small ways and tells which breaks the tests do not notice.

``mutants.yaml`` lists the mutants: by file, one piece of text replaced by another, and the tests
that should fail. Each is applied alone to a copy of the tree, and its tests run there. Results are
written after every mutant; a run that was interrupted goes on where it stopped.

Examples:
    python scripts/mutants.py survivors.json
    python scripts/mutants.py survivors.json --only bitgnn/nn
    python scripts/mutants.py before.json --tree ../older-checkout
"""

from __future__ import annotations

import compileall
import importlib
import json
import multiprocessing
import os
import py_compile
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
import yaml
from tqdm import tqdm

TABLE = Path(__file__).with_suffix(".yaml")
ROOT = Path(__file__).parent.parent
COPIED = ("bitgnn", "tests", "scripts", "pyproject.toml")
PRELOADED = ("pytest", "hypothesis", "numpy", "scipy", "torch", "torch_geometric")
"""Imported once; the children that run tests are forked with them."""
ARROW = " => "


@dataclass(frozen=True)
class Mutant:
    """One edit.

    Attributes:
        file: relative to the tree.
        old: text that occurs once in it.
        new: text in its place.
        tests: files or folders of tests that should notice, separated by blanks.
    """

    file: str
    old: str
    new: str
    tests: str

    @property
    def name(self) -> str:
        """The key of its result; of one without a file, which changes nothing, its tests."""
        return f"{self.file}: {self.old}{ARROW}{self.new}" if self.file else self.tests


def read_table(path: Path = TABLE) -> list[Mutant]:
    """All mutants of a table."""
    found = []
    for group in yaml.safe_load(path.read_text()):
        for edit in group["edits"]:
            old, _, new = edit.partition(ARROW)
            found.append(Mutant(group["file"], old, new, group["tests"]))
    return found


def copy_tree(source: Path, target: Path) -> None:
    """What tests need, with bytecode that is checked by the hash of its source.

    Times of files would not tell a mutant from the original written in the same second.
    """
    for name in COPIED:
        if (source / name).is_dir():
            leave = shutil.ignore_patterns("__pycache__", "results")
            shutil.copytree(source / name, target / name, ignore=leave)
        else:
            shutil.copy(source / name, target / name)
    mode = py_compile.PycInvalidationMode.CHECKED_HASH
    for name in ("bitgnn", "tests"):
        compileall.compile_dir(target / name, quiet=2, invalidation_mode=mode)


def _run_tests(tree: Path, tests: list[str]) -> None:
    """In a child: runs tests until one fails and exits with pytest's status."""
    os.setsid()  # the parent can end what tests start
    os.chdir(tree)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(tree))
    os.environ["PYTHONPATH"] = str(tree)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    pytest = importlib.import_module("pytest")
    os._exit(int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *tests])))


def status_of(tree: Path, tests: list[str], timeout: float) -> str:
    """``"killed"``, ``"survived"``, ``"timeout"`` (a kill too) or ``"no tests"``."""
    present = [test for test in tests if (tree / test).exists()]
    if not present:
        return "no tests"
    child = multiprocessing.get_context("fork").Process(target=_run_tests, args=(tree, present))
    child.start()
    child.join(timeout)
    if child.exitcode is None:
        assert child.pid is not None
        os.killpg(child.pid, 9)
        child.join()
        return "timeout"
    return {0: "survived", 5: "no tests"}.get(child.exitcode, "killed")


def try_mutant(mutant: Mutant, tree: Path, timeout: float) -> str:
    """Applies a mutant, runs its tests and takes it back; ``"stale"`` where its text is gone."""
    if not mutant.file:
        return status_of(tree, mutant.tests.split(), timeout)
    file = tree / mutant.file
    text = file.read_text() if file.exists() else ""
    if text.count(mutant.old) != 1:
        return "stale"
    file.write_text(text.replace(mutant.old, mutant.new))
    try:
        return status_of(tree, mutant.tests.split(), timeout)
    finally:
        file.write_text(text)


def main(
    output: Annotated[Path, typer.Argument(help="JSON of results, resumed where it exists.")],
    only: Annotated[str, typer.Option(help="Mutants with this in their file or tests.")] = "",
    tree: Annotated[Path, typer.Option(help="Checkout to test, with its library built.")] = ROOT,
    timeout: Annotated[float, typer.Option(help="Seconds for one mutant.")] = 300.0,
) -> None:
    """Run the mutants; exit 1 if tests fail without one or the table is out of date."""
    results: dict[str, str] = json.loads(output.read_text()) if output.exists() else {}
    mutants = [m for m in read_table() if only in m.file or only in m.tests]
    unchanged = [Mutant("", "", "", tests) for tests in sorted({m.tests for m in mutants})]
    tried = [*unchanged, *mutants]
    for name in PRELOADED:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        copy_tree(tree, copy)
        for mutant in tqdm([m for m in tried if m.name not in results], unit="mutant"):
            results[mutant.name] = try_mutant(mutant, copy, timeout)
            output.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    broken = [m.tests for m in unchanged if results[m.name] != "survived"]
    found = Counter(results[mutant.name] for mutant in mutants)
    print(", ".join(f"{number} {status}" for status, number in sorted(found.items())))
    for mutant in mutants:
        if results[mutant.name] not in ("killed", "timeout"):
            print(f"{results[mutant.name]}: {mutant.name} ({mutant.tests})")
    for tests in broken:
        print(f"fails without a mutant: {tests}")
    raise typer.Exit(bool(broken or found["stale"] or found["no tests"]))


if __name__ == "__main__":
    typer.run(main)
