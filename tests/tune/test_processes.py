"""`bitgnn tune` as processes: a killed one loses nothing it had finished; two share a file."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

pytest.importorskip("optuna")
pytestmark = pytest.mark.slow

# Shells start what runs behind them deaf to Ctrl-C.
ONE_BY_ONE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from bitgnn.cli import main
from bitgnn.tune import search
search.CHOICES_AT_ONCE = 1
{pause}
main()
"""
# In front of every look at letters, so that there is time to stop the process behind the first.
PAUSE = """
import time
look = search.Search._explore
search.Search._explore = lambda self, *chain: (time.sleep(1), look(self, *chain))[1]
"""
COMMAND = [
    "tune", "--data", "digits", "--hidden", "8", "--epochs", "1", "--widen", "1", "--threads", "1",
    "--pin", "convs.0=F*B+BBF", "--pin", "convs.1=FBF+F*F", "--constraint", "accuracy drop <= 90%",
]  # fmt: skip
CHAINS = 4
PATIENCE = 300
"""Seconds until a process counts as stuck, which none comes near."""


def _start(folder, *more, pause=""):
    script = ONE_BY_ONE.format(pause=pause)
    return subprocess.Popen(
        [sys.executable, "-c", script, *COMMAND, "--output", str(folder), *more],
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finish(process):
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors


def _trials(path):
    """Finished trials by number: kind, and plans as they were stored."""
    found = {}
    if not path.exists():
        return found
    with closing(sqlite3.connect(path, timeout=60)) as connection:
        try:
            rows = connection.execute(
                "select number, key, value_json from trials join trial_user_attributes "
                "using (trial_id) where state = 'COMPLETE' and key in ('kind', 'plans')"
            ).fetchall()
        except sqlite3.OperationalError:  # the tables are being made
            return found
    for number, key, value in rows:
        found.setdefault(number, {})[key] = json.loads(value)
    return found


def _letters(trials):
    """Letters of the trials that looked at all their plans, one entry a trial."""
    return [
        json.dumps(trial["plans"][0]["plan"]["letters"])
        for trial in trials.values()
        if trial["kind"] == "letters"
    ]


def _stopped(folder, how):
    """A process that is sent a signal while it looks at letters: its status and last words."""
    process = _start(folder, pause=PAUSE)
    end = time.monotonic() + PATIENCE
    while process.poll() is None and not _letters(_trials(folder / "tune.db")):
        assert time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(how)
    _, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, errors


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Folder of a process that was killed while it looked at letters, and its trials."""
    folder = tmp_path_factory.mktemp("killed") / "out"
    status, errors = _stopped(folder, signal.SIGKILL)
    assert status == -signal.SIGKILL, errors
    return folder, _trials(folder / "tune.db")


def test_ctrl_c_keeps_what_was_finished_and_says_so(killed, tmp_path):
    folder = shutil.copytree(killed[0], tmp_path / "out")  # its students
    (folder / "tune.db").unlink()
    status, errors = _stopped(folder, signal.SIGINT)
    assert status == 130, errors
    assert f"kept in {folder} are distilled students: 1, plans looked at" in errors
    assert "Traceback" not in errors
    assert 1 <= len(_letters(_trials(folder / "tune.db"))) < CHAINS
    assert not (folder / "tune.json").exists()


def test_what_a_killed_process_had_finished_is_not_done_again(killed, tmp_path):
    place, before = killed
    assert 1 <= len(_letters(before)) < CHAINS
    folder = shutil.copytree(place, tmp_path / "out")
    trained = {path: path.read_bytes() for path in (folder / "students").rglob("*.csv")}
    assert trained
    _finish(_start(folder))
    assert {path: path.read_bytes() for path in trained} == trained
    after = _trials(folder / "tune.db")
    assert {number: after[number] for number in before} == before
    assert len(_letters(after)) == len(set(_letters(after))) == CHAINS
    result = json.loads((folder / "tune.json").read_text())
    assert len({json.dumps(t["plan"]["letters"]) for t in result["trials"]}) == CHAINS
    plans = [plan for trial in before.values() for plan in trial["plans"]]
    first, again = (
        {json.dumps(plan["plan"], sort_keys=True): plan["estimate"] for plan in some}
        for some in (plans, result["trials"])
    )
    assert {plan: again[plan] for plan in first} == first


def test_two_processes_share_a_file(killed, tmp_path):
    place, _ = killed
    storage = tmp_path / "shared.db"
    folders = [shutil.copytree(place, tmp_path / name) for name in ("one", "two")]
    for process in [_start(folder, "--storage", str(storage)) for folder in folders]:
        _finish(process)
    found = _letters(_trials(storage))
    assert len(set(found)) == CHAINS
    # Both may be at the same letters at one time, but neither goes through all of them by itself.
    assert len(found) < 2 * CHAINS
    for folder in folders:
        result = json.loads((folder / "tune.json").read_text())
        assert len({json.dumps(t["plan"]["letters"]) for t in result["trials"]}) == CHAINS
