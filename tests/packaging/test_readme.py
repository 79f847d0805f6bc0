"""The README's examples that stand by themselves run as they are printed."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(block, marks=[pytest.mark.slow] if "load_digits_graph" in block else [])
    for block in CODE.findall(README.read_text(encoding="utf-8"))
    if block.startswith("import torch")
]


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 5


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_example(block, tmp_path, monkeypatch) -> None:
    if "import LlamaConfig" in block:
        pytest.importorskip("transformers", reason="transformers is not installed")
    monkeypatch.chdir(tmp_path)  # what they save
    exec(compile(block, str(README), "exec"), {"__name__": "__main__"})
