"""README.md, docs/ and mkdocs.yml: links lead somewhere, names have entries."""

import ast
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
README_LINES = 200
DOCS = ROOT / "docs"
PACKAGE = ROOT / "bitgnn"
# Pages that scripts/docs/pages.py makes, and what from.
MADE = {"index.md": ROOT / "README.md", "contents.md": DOCS / "README.md"}
ENTRY = re.compile(r"^::: (bitgnn[\w.]*)$((?:\n {4}.*)*)", re.MULTILINE)
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
PAGES = {page: page.read_text(encoding="utf-8") for page in sorted((DOCS / "api").glob("*.md"))}
# Packages whose names all have an entry under one of these packages, or at the top.
DOCUMENTED = [
    "bits", "convert", "data", "distillation", "distributed", "exchange", "inference", "models",
    "nn", "ops", "quantize", "tune",
]  # fmt: skip


def test_links_lead_somewhere() -> None:
    assert len(DOCUMENTS[0].read_text(encoding="utf-8").splitlines()) <= README_LINES
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for target, anchor in LINK.findall(text):
            file = (path.parent / target).resolve() if target else path
            assert file.exists(), f"{path}: {target}"
            if anchor:
                headings = re.findall(r"^#+ (.*)", file.read_text(encoding="utf-8"), re.MULTILINE)
                names = [re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings]
                assert anchor in names, f"{path}: {target}#{anchor}"


def public_names(module: Path) -> list[str]:
    """``__all__``, without an import; the functions and classes of a module without it."""
    body = ast.parse(module.read_text(encoding="utf-8")).body
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    defined = [n.name for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    return [name for name in defined if not name.startswith("_")]


def entries() -> set[str]:
    """Full names with an entry, those of whole modules spelt out as mkdocstrings finds them."""
    found = set()
    for text in PAGES.values():
        for name, options in ENTRY.findall(text):
            found.add(name)
            path = PACKAGE.joinpath(*name.split(".")[1:])
            members = re.findall(r"^ {8}- (\w+)$", options, re.MULTILINE)
            module = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            if module.is_file():
                # A submodule hides a function of the same name.
                names = members or [n for n in public_names(module) if not is_module(path / n)]
                found.update(f"{name}.{member}" for member in names)
    return found


def is_module(path: Path) -> bool:
    return path.is_dir() or path.with_suffix(".py").is_file()


def navigated(part: object) -> list[str]:
    if isinstance(part, str):
        return [part]
    parts = part.values() if isinstance(part, dict) else part
    return [page for inner in parts for page in navigated(inner)]


ENTRIES = entries()


def test_every_page_is_in_the_navigation_once_and_hooks_are_there() -> None:
    own = {p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md")} - {"README.md"}
    assert sorted(navigated(SITE["nav"])) == sorted(own | set(MADE))
    assert all(source.is_file() for source in MADE.values())
    handlers = next(p["mkdocstrings"] for p in SITE["plugins"] if "mkdocstrings" in p)["handlers"]
    files = [*SITE["hooks"], *handlers["python"]["options"]["extensions"]]
    assert all((ROOT / file).is_file() for file in files)
    assert all((DOCS / sheet).is_file() for sheet in SITE["extra_css"])


def test_entries_are_there_once() -> None:
    names = [name for text in PAGES.values() for name, _ in ENTRY.findall(text)]
    assert len(names) == len(set(names))
    for name in ENTRIES:
        module, attribute = PACKAGE, []
        for part in name.split(".")[1:]:
            if attribute or not is_module(module / part):
                attribute.append(part)
            else:
                module /= part
        if attribute:
            file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
            assert attribute[0] in public_names(file), name


def test_top_level_names_have_an_entry() -> None:
    for name in public_names(PACKAGE / "__init__.py"):
        page = DOCS / "api" / f"{name}.md"
        if name == "__version__":
            assert "`bitgnn.__version__`" in PAGES[DOCS / "api/bitgnn.md"]
        else:
            assert f"bitgnn.{name}" in ENTRIES or page in PAGES, name


@pytest.mark.parametrize("package", DOCUMENTED)
def test_names_of_packages_have_an_entry(package) -> None:
    top = {name for name in ENTRIES if name.count(".") == 1}
    below = {e.rpartition(".")[2] for e in ENTRIES if e.startswith(f"bitgnn.{package}.")}
    for name in public_names(PACKAGE / package / "__init__.py"):
        assert name in below or f"bitgnn.{name}" in top, f"bitgnn.{package}.{name}"
