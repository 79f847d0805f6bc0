"""Modules of the package import one another downward only: there is no circle of them."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import bitgnn

ROOT = Path(bitgnn.__file__).parent


def modules():
    """Path of each module by its name."""
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imported(path, names):
    """Modules that a file imports, in functions as well; not those that type checkers alone see."""
    tree = ast.parse(path.read_text("utf-8"))
    unseen = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in unseen:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in names else node.module


def test_no_circle_of_modules():
    paths = dict(modules())
    assert len(paths) > 100
    found = {
        name: set(imported(path, paths)) & paths.keys() - {name} for name, path in paths.items()
    }
    list(TopologicalSorter(found).static_order())  # raises a CycleError that names them
