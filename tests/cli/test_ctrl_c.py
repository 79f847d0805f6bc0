"""Ctrl-C stops a command: while it imports, in its job, where Python can only print it."""

import builtins
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from bitgnn.cli import running

ROOT = Path(__file__).parents[2]
PATIENCE = 60
"""Seconds until a command counts as deaf."""
# Shells have background jobs ignore Ctrl-C.
PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "import bitgnn_command; bitgnn_command.main()"
)
INTERRUPT = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"


@pytest.fixture
def listening():
    """Shells start what runs behind them deaf to Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("listening")
def test_ctrl_c_in_a_destructor_stops_the_command(capsys):
    class PressesInDestructor:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    heard = []

    def job():
        PressesInDestructor()  # gone at once; its exception cannot leave the destructor
        end = time.monotonic() + PATIENCE
        try:
            while time.monotonic() < end:
                time.sleep(0.01)
        except KeyboardInterrupt:
            heard.append(True)
            raise

    with pytest.raises(typer.Exit) as stopped, running():
        job()
    assert heard
    assert stopped.value.exit_code == 130
    assert "Traceback" not in capsys.readouterr().err


def test_other_exceptions_of_destructors_are_printed_as_ever(monkeypatch):
    class Fails:
        def __del__(self):
            raise ValueError("in a destructor")

    seen = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    with running():
        Fails()
    assert [type(one.exc_value) for one in seen] == [ValueError]
    assert sys.unraisablehook == seen.append


def test_interrupt_while_a_job_imports_is_a_status(run, monkeypatch):
    def stopped(name, *arguments):
        if name == "bitgnn.data":
            raise KeyboardInterrupt
        return whole(name, *arguments)

    whole = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", stopped)
    assert run("doctor", status=130).output == ""


@pytest.mark.parametrize(
    ("files", "status", "said"),
    [
        # While the command line is imported, which may catch anything.
        (
            {"cli.py": f"try:\n    {INTERRUPT}\nexcept BaseException:\n    pass\nmain = print\n"},
            130,
            "",
        ),
        # Behind the imports interrupts are the command's.
        (
            {
                "cli.py": f"def main():\n    try:\n        {INTERRUPT}\n"
                "    except KeyboardInterrupt:\n        print('stopped')\n"
            },
            0,
            "stopped\n",
        ),
        # While a job imports the package.
        (
            {
                "__init__.py": f"{INTERRUPT}\nprint('imported')\n",
                "cli.py": "from bitgnn.base import load_package\nmain = load_package\n",
            },
            130,
            "",
        ),
    ],
)
def test_the_entry_point(tmp_path, files, status, said):
    """A package of the same name, whose import and command the test chooses."""
    shutil.copy(ROOT / "bitgnn_command.py", tmp_path)
    package = tmp_path / "bitgnn"
    package.mkdir()
    (package / "__init__.py").touch()
    for name in ("_interpreter.py", "_version.py", "cli/base.py"):
        shutil.copy(ROOT / "bitgnn" / name, package)
    for name, text in files.items():
        (package / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (status, said, "")
