"""Ctrl-C stops a command even where Python can only print the exception."""

import signal
import sys
import time

import pytest
import typer

from bitgnn.cli import running

PATIENCE = 60
"""Seconds until a command counts as deaf."""


class PressesInDestructor:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)


@pytest.fixture
def listening():
    """Shells start what runs behind them deaf to Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("listening")
def test_ctrl_c_in_a_destructor_stops_the_command(capsys):
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


def test_other_exceptions_of_destructors_are_printed_as_ever(capsys):
    class Fails:
        def __del__(self):
            raise ValueError("in a destructor")

    before = sys.unraisablehook
    seen = []
    sys.unraisablehook = seen.append
    try:
        with running():
            Fails()
    finally:
        after, sys.unraisablehook = sys.unraisablehook, before
    assert [type(one.exc_value) for one in seen] == [ValueError]
    assert after == seen.append
