"""README.md, CONTRIBUTING.md and docs/: their code runs, commands exist, figures are records'."""

import ast
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from bitgnn._library import load_for_dry_runs
from bitgnn.cli import app

ROOT = Path(__file__).resolve().parents[2]
FILES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in FILES}
# A block that is not run says why in a comment on the line in front of it.
BLOCK = re.compile(r"^(?:<!-- not run: (.+?) -->\n)?```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"<!-- table:(\w+) -->.*?<!-- /table:\1 -->", re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
FIGURE = re.compile(r"(?<![\w.])\d[\d.,]*\s?(?:[µm]s\b|×(?!\d)|%|[KMG]iB\b)")
# Bounds that code keeps are not measured.
BOUND = re.compile(rf"(?:less than|at most|within) {FIGURE.pattern}|{FIGURE.pattern} at most")
# Whole pages of more than about eight seconds.
SLOW = {"README.md", "docs/guide/command.md", "docs/guide/tuning.md"}
# Programs that are not of this repository, and what belongs to any of them.
OTHERS = {"docker", "git", "mkdocs", "pip", "pre-commit", "pytest"}
OPTIONS_OF_OTHERS = {
    "--json", "--help", "--version", "--system-site-packages", "--no-build-isolation", "--strict",
    "--install-completion",
}  # fmt: skip
# Names that fragments of a page leave to their reader.
BEFORE = {
    "docs/concepts/operators.md": """
from torch import Tensor
from bitgnn.ops.reference.table import Arguments
operator = lambda row: lambda function: function  # the operator of the page is there already
""",
    "docs/guide/graphs.md": """
import torch
import bitgnn
from bitgnn.data import NeighborLoader, load_digits_graph
from bitgnn.nn import GCNConv
from small_models import Net
data = load_digits_graph()
x, edges, num_nodes = data.x, data.edge_index, data.num_nodes
num_classes = 10
way = lambda net, x, edges: net.conv2(net.conv1(x, edges).relu(), edges)
model = Net(way, conv1=GCNConv(61, 64), conv2=GCNConv(64, 10))
for _ in range(3):
    model(x, edges).square().mean().backward()
frozen = bitgnn.freeze(model.eval())
other_x, out, weight = x.clone(), torch.empty(num_nodes, 10), torch.rand(edges.size(1))
loader = NeighborLoader(data, [5, 5], batch_size=64)
""",
}


def blocks(page, *languages):
    """Code of a page in these languages that is to be run, and why other blocks are not."""
    found = BLOCK.findall(PAGES[page])
    return [(why, code) for why, language, code in found if language in languages]


def pages_with(*languages):
    return [
        pytest.param(page, marks=[pytest.mark.slow] if page in SLOW else [])
        for page in PAGES
        if any(not why for why, _ in blocks(page, *languages))
    ]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to run in."""
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    yield tmp_path
    torch.set_num_threads(threads)


@pytest.mark.parametrize("page", pages_with("python"))
def test_python_of_a_page_runs_from_top_to_bottom(page, folder):
    names = {"__name__": "__main__"}
    exec(BEFORE.get(page, ""), names)
    for why, code in blocks(page, "python"):
        if "bitgnn.ops.route" in code and load_for_dry_runs():
            continue
        if not why:
            exec(compile(code, page, "exec"), names)


def test_blocks_of_python_can_be_compiled():
    codes = [(page, code) for page in PAGES for _, code in blocks(page, "python")]
    assert len(codes) >= 20
    for page, code in codes:
        compile(code, page, "exec")


@pytest.mark.parametrize("page", pages_with("sh"))
def test_commands_of_a_page_run(page, folder):
    for why, code in blocks(page, "sh"):
        for line in lines_of(code) if not why else ():
            program, *words = shlex.split(line, comments=True)
            assert program == "bitgnn", f"{page}: {line} neither runs here nor says why"
            result = CliRunner().invoke(app, words)
            assert result.exit_code == 0, f"{line}\n{result.output}"


def lines_of(code):
    """Commands of a block; lines that end in a backslash go on."""
    joined = code.replace("\\\n", " ")
    lines = [line.strip() for line in joined.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def commands(page):
    """Every command of a page, those of inline code among them, as words."""
    shell = [line for _, code in blocks(page, "sh") for line in lines_of(code)]
    inline = [" ".join(code.split()) for code in INLINE.findall(BLOCK.sub("", PAGES[page]))]
    for line in (*shell, *inline):
        for part in line.split("&&"):
            try:
                words = shlex.split(part, comments=True)
            except ValueError:  # a fragment of code
                continue
            while words and re.match(r"[A-Z_]+=", words[0]):
                words.pop(0)
            if len(words) > 1 or line in shell:
                yield words


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist_and_take_their_options(page):
    for words in commands(page):
        program, *rest = words
        if program in OTHERS or "COMMAND" in rest:
            extras = re.findall(r"\[([\w,]+)\]", " ".join(rest)) if program == "pip" else ()
            assert set(",".join(extras).split(",")) - {""} <= extras_of_the_project()
        elif program == "bitgnn" and rest[0] not in OPTIONS_OF_OTHERS:
            command = typer.main.get_command(app)
            assert rest[0] in command.commands, " ".join(words)
            if any(word.startswith("-") for word in rest):
                with command.make_context("bitgnn", []) as context:
                    command.commands[rest[0]].make_context(rest[0], rest[1:], parent=context)
        elif program in ("python", "bash") or program.startswith("scripts/"):
            script = program if program.startswith("scripts/") else rest[0]
            if script == "-m":
                continue
            assert (ROOT / script).is_file(), f"{page}: {' '.join(words)}"
            if script.endswith(".py"):
                given = {word for word in rest if word.startswith("--")}
                assert given <= options_of(script), f"{page}: {' '.join(words)}"


@pytest.mark.parametrize("page", PAGES)
def test_options_named_alone_belong_to_a_command_of_the_page(page):
    known = set(OPTIONS_OF_OTHERS)
    for command in typer.main.get_command(app).commands.values():
        known |= {option for parameter in command.params for option in parameter.opts}
    for words in commands(page):
        known |= options_of(words[1]) if words[1:] and words[1].startswith("scripts/") else set()
    for code in INLINE.findall(BLOCK.sub("", PAGES[page])):
        for option in re.findall(r"^--[a-z-]+", code):
            assert option in known, f"{page}: {option}"


@cache
def options_of(script):
    """Options that a script and the modules of scripts/ that it imports add to parsers."""
    found, waiting, seen = {"--help"}, [ROOT / script], set()
    while waiting:
        path = waiting.pop()
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= set(re.findall(r"^--[a-z-]+$", node.value))
            elif isinstance(node, ast.ImportFrom) and node.module:
                base = node.module.replace(".", "/")
                names = [base, *(f"{base}/{alias.name}" for alias in node.names)]
                for folder in (ROOT / "scripts", path.parent):
                    waiting += [folder / f"{name}.py" for name in names]
    return found


@cache
def extras_of_the_project():
    """Names of pyproject.toml's optional dependencies."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    section = text.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    return set(re.findall(r"^(\w+) = \[", section, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES)
def test_figures_come_from_records(page):
    """Times, ratios, shares and sizes stand in tables alone, which are made from records."""
    prose = INLINE.sub("", BLOCK.sub("", TABLE.sub("", PAGES[page])))
    assert not FIGURE.findall(BOUND.sub("", prose)), page


def test_reasons_for_not_running_are_few():
    """Most blocks run; a reason is a sentence of its own."""
    reasons = [why for page in PAGES for why, _ in blocks(page, "python", "sh") if why]
    assert all(len(reason.split()) > 2 for reason in reasons)
    assert len(reasons) <= 12
