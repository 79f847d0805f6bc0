"""README.md and docs/: examples that stand by themselves run as printed, links lead somewhere."""

import re
from pathlib import Path

import pytest

from bitgnn._library import load_for_dry_runs

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
README_LINES = 200
BLOCKS = [
    pytest.param(block, marks=[pytest.mark.slow] if "load_digits_graph" in block else [])
    for path in DOCUMENTS
    for block in CODE.findall(path.read_text(encoding="utf-8"))
    if block.startswith("import torch")
]


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 5


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_example(block, tmp_path, monkeypatch) -> None:
    if "import LlamaConfig" in block:
        pytest.importorskip("transformers", reason="transformers is not installed")
    if "bitgnn.ops.route" in block and load_for_dry_runs():
        pytest.skip(load_for_dry_runs())
    monkeypatch.chdir(tmp_path)  # what they save
    exec(compile(block, "example", "exec"), {"__name__": "__main__"})


def test_every_block_is_valid_python() -> None:
    for path in DOCUMENTS:
        for block in CODE.findall(path.read_text(encoding="utf-8")):
            compile(block, str(path), "exec")


def test_links_lead_somewhere() -> None:
    for path in DOCUMENTS:
        for target, anchor in LINK.findall(path.read_text(encoding="utf-8")):
            file = (path.parent / target).resolve() if target else path
            assert file.exists(), f"{path}: {target}"
            if anchor:
                headings = re.findall(r"^#+ (.*)", file.read_text(encoding="utf-8"), re.MULTILINE)
                names = [re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings]
                assert anchor in names, f"{path}: {target}#{anchor}"


def test_readme_is_short() -> None:
    assert len(DOCUMENTS[0].read_text(encoding="utf-8").splitlines()) <= README_LINES
