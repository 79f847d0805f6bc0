"""The entry point: Ctrl-C while libraries are imported, and the command behind it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Shells have background jobs ignore Ctrl-C.
PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "import bitgnn_command; bitgnn_command.main()"
)
INTERRUPT = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"


@pytest.fixture
def package(tmp_path):
    """A package of the same name, whose import and command the test chooses."""
    shutil.copy(ROOT / "bitgnn_command.py", tmp_path)
    (tmp_path / "bitgnn").mkdir()
    (tmp_path / "bitgnn" / "__init__.py").touch()
    shutil.copy(ROOT / "bitgnn" / "_interpreter.py", tmp_path / "bitgnn")
    return tmp_path / "bitgnn" / "cli.py"


def run(package):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=package.parents[1], capture_output=True, text=True
    )


def test_interrupt_while_importing_is_a_status_alone(package):
    package.write_text(f"try:\n    {INTERRUPT}\nexcept BaseException:\n    pass\nmain = print\n")
    done = run(package)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_behind_the_imports_interrupts_are_the_commands(package):
    package.write_text(
        "def main():\n"
        f"    try:\n        {INTERRUPT}\n"
        "    except KeyboardInterrupt:\n        print('stopped')\n"
    )
    done = run(package)
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")


def test_interrupt_while_a_job_imports_the_package_is_a_status_alone(package):
    for name in ("_version.py", "cli/base.py"):
        shutil.copy(ROOT / "bitgnn" / name, package.parent)
    (package.parent / "__init__.py").write_text(f"{INTERRUPT}\nprint('imported')\n")
    package.write_text("from bitgnn.base import load_package\nmain = load_package\n")
    done = run(package)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
