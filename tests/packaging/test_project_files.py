"""Workflows, forms, citation and image: they are well-formed, and what they name exists."""

import ast
import re
import shlex
from pathlib import Path

import pytest
import yaml

import bitgnn
from bitgnn import _library

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
if not GITHUB.is_dir():
    pytest.skip("the archive of sources holds no workflows", allow_module_level=True)
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((GITHUB / "workflows").glob("*.yml"))
}
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
CI_SCRIPT = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
INSTALLED = {
    "bash", "bitgnn", "clang-format", "cyclonedx-py", "docker", "echo", "find", "gh", "grep",
    "lint-imports", "mkdocs", "mypy", "pip", "pytest", "python", "ruff", "typos", "xargs",
}  # fmt: skip
"""Commands that need no file of this repository."""


def steps(workflow, job=None):
    jobs = workflow["jobs"]
    chosen = jobs.values() if job is None else [jobs[job]]
    return [step for job in chosen for step in job.get("steps", [])]


def commands(workflow, job=None):
    lines = "\n".join(step["run"] for step in steps(workflow, job) if "run" in step)
    return [line.strip() for line in lines.splitlines() if line.strip()]


def ci_function(name):
    return re.search(rf"^{name}\(\) [({{](.*?)[)}}]\n\n", CI_SCRIPT, re.M | re.S)[1]


COMMANDS = [(name, line) for name, flow in WORKFLOWS.items() for line in commands(flow)]


def test_workflows_are_those_expected():
    assert sorted(WORKFLOWS) == ["ci", "docs", "release", "versions", "wheels"]
    for workflow in WORKFLOWS.values():
        assert workflow["name"]
        assert True in workflow  # YAML's reading of the key `on`
        assert "contents" in workflow["permissions"]
        for job in workflow["jobs"].values():
            needed = job.get("needs", [])
            needed = needed.split() if isinstance(needed, str) else needed
            assert set(needed) <= set(workflow["jobs"])
            assert "uses" not in job or (ROOT / job["uses"]).is_file()
            assert "uses" in job or job["timeout-minutes"] <= 180
        for step in steps(workflow):
            assert ("uses" in step) != ("run" in step)
            # By hash: a tag may be moved to other code.
            assert re.search(r"@[0-9a-f]{40}$", step.get("uses", f"@{'0' * 40}")), step


@pytest.mark.parametrize(("workflow", "line"), COMMANDS)
def test_commands_of_workflows_exist(workflow, line):
    words = shlex.split(line)
    while "=" in words[0]:  # environment variables
        words.pop(0)
    if words[0] not in INSTALLED and not words[0].startswith("/"):
        assert (ROOT / words[0]).is_file()
    for word in words:
        if re.match(r"(scripts|tests|\.ci|bitgnn)/", word):
            assert (ROOT / word).exists(), word
    if "-m" in words and words[0] == "pytest":
        for marker in set(words[words.index("-m") + 1].split()) - {"and", "not", "or"}:
            assert f'"{marker}: ' in PROJECT
    if words[:2] == ["pip", "install"] and words[2].startswith(".["):
        for extra in words[2][2:-1].split(","):
            assert re.search(rf"^{extra} = \[", PROJECT, re.M), extra
    if words[:2] == ["bitgnn", "demo"]:
        assert "--seeds" in words


def test_ci_is_that_of_the_script():
    jobs = WORKFLOWS["ci"]["jobs"]
    lint = [line for line in commands(WORKFLOWS["ci"], "lint") if not line.startswith("pip")]
    *lint, documentation = lint
    expected = ci_function("static_checks").replace('cd "$tree"', "").split()
    assert " ".join(lint).split() == expected
    assert documentation.rpartition(" ")[0] in ci_function("documentation")
    shards = jobs["tests"]["strategy"]["matrix"]["folders"]  # hold all tests once
    folders = {path.parent for path in (ROOT / "tests").glob("*/test_*.py")}
    expected = sorted(str(folder.relative_to(ROOT)) for folder in folders)
    assert sorted(" ".join(shards).split()) == expected
    for name in ("OMP_NUM_THREADS", "MPLBACKEND"):
        assert f"{name}={WORKFLOWS['ci']['env'][name]}" in CI_SCRIPT
    for job, function in (("reference", "without_binaries"), ("kernels", "capability_tests")):
        test = commands(WORKFLOWS["ci"], job)[-1].replace("-n auto ", "")
        assert test in ci_function(function)
    oldest = re.search(r'requires-python = ">=([\d.]+)"', PROJECT)[1]
    for workflow, job in (("ci", "tests"), ("wheels", "wheel")):
        pythons = WORKFLOWS[workflow]["jobs"][job]["strategy"]["matrix"]["python"]
        assert pythons[0] == oldest


def test_what_is_tagged_is_published_without_a_token():
    jobs = WORKFLOWS["release"]["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    attested = next(s for s in jobs["sbom"]["steps"] if "attest" in s.get("uses", ""))
    assert "dist/*" in attested["with"]["subject-path"]
    needs = {name: job["needs"] for name, job in jobs.items() if "needs" in job}
    assert needs == {
        "tests": "version", "wheels": "version", "sbom": "wheels",
        "publish": ["tests", "wheels", "sbom"], "release": "publish",
    }  # fmt: skip
    assert jobs["tests"]["uses"] == "./.github/workflows/ci.yml"
    assert "workflow_call" in WORKFLOWS["ci"][True]
    assert "secrets." not in str(WORKFLOWS)
    check = commands(WORKFLOWS["release"], "version")[0]
    line = f'__version__ = "{bitgnn.__version__}"'
    assert shlex.split(check.replace("${GITHUB_REF_NAME#v}", bitgnn.__version__))[2] == line
    assert line in (ROOT / "bitgnn" / "_version.py").read_text(encoding="utf-8").splitlines()


def test_versions_are_the_same_everywhere():
    (oldest, *_), (newest, *_) = (
        job["packages"].split()
        for job in WORKFLOWS["versions"]["jobs"]["tests"]["strategy"]["matrix"]["include"]
    )
    first, last = (".".join(map(str, v)) for v in (_library.FIRST_TORCH, _library.LAST_TORCH))
    assert (oldest, newest) == (f"torch=={first}.*", "torch")
    dependencies = re.search(r"^dependencies = \[\n(.*?)^\]", PROJECT, re.M | re.S)[1]
    assert f'"torch>={first}"' in dependencies
    assert "<" not in dependencies  # nothing that would replace a newer package
    constraints = (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8")
    assert re.search(rf"^torch=={re.escape(last)}\.", constraints, re.M)
    building = (ROOT / "docs" / "guide" / "building.md").read_text(encoding="utf-8")
    assert f"| torch | {first} | {last} |" in building


def test_owners_are_named_for_all_files():
    owners = (GITHUB / "CODEOWNERS").read_text(encoding="utf-8")
    rules = [line.split() for line in owners.splitlines() if not line.startswith("#")]
    assert rules[0][0] == "*"
    assert all(owner.startswith("@") for _, *names in rules for owner in names)
    assert all((ROOT / path.strip("/")).exists() for path, *_ in rules[1:])


def test_issue_forms():
    forms = {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml")
    }
    assert forms.pop("config") == {"blank_issues_enabled": False}
    for form in forms.values():
        assert form["name"]
        assert form["description"]
        for field in form["body"]:
            assert field["attributes"]["label"]
            assert field["type"] == "textarea" or field["attributes"]["options"]


def test_citation_has_what_readers_of_it_require():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == bitgnn.__version__
    assert f'license = "{citation["license"]}"' in PROJECT
    assert citation["message"]
    assert citation["type"] == "software"
    for work in (citation, *citation["references"]):
        assert work["title"]
        authors = [set(author) for author in work["authors"]]
        assert authors
        assert all(keys in ({"name"}, {"family-names", "given-names"}) for keys in authors)


def test_image_installs_and_runs_the_main_job():
    instructions = re.findall(r"^([A-Z]+) (.*)$", DOCKERFILE, re.M)
    assert re.fullmatch(r"python:3\.\d+-slim", dict(instructions)["FROM"])
    assert "pip install /source" in DOCKERFILE
    command = " ".join(ast.literal_eval(dict(instructions)["CMD"]))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"pip install -c .ci/constraints.txt . && {command}\n" in readme


def test_contributing_names_what_exists():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for path in re.findall(r"`(?:bash )?([\w.]+/[\w./]*)`", text):
        assert (ROOT / path).exists(), path
    for marker in re.findall(r"`(cuda|kernels|slow)`", text):
        assert f'"{marker}: ' in PROJECT
