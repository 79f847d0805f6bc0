"""The cache of timings: what it keeps, for whom, and which files it does not trust."""

import json
import warnings

import pytest
import torch

from bitgnn.tune import timings
from bitgnn.tune.timings import CallTime, TimingCache

CALL = {"steps": ["bmm_bbb"], "nodes": 3}


def _add(path):
    cache = TimingCache(path, "cpu")
    cache.put(CALL, CallTime(2.0, 2.0))
    cache.save()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "times.json"


def test_keeps_times_from_run_to_run(path):
    cache = TimingCache(path, "cpu")
    assert cache.get(CALL) is None
    cache.put(CALL, CallTime(2e-3, 1e-3))
    cache.save()
    again = TimingCache(path, "cpu")
    assert again.get(dict(reversed(CALL.items()))) == CallTime(2e-3, 1e-3)
    assert again.get({**CALL, "nodes": 4}) is None
    assert len(again) == 1


def test_times_of_other_environments_do_not_count_and_stay(path, monkeypatch):
    cache = TimingCache(path, "cpu")
    cache.put(CALL, CallTime(1.0, 1.0))
    cache.save()
    with monkeypatch.context() as patch:
        patch.setattr(timings, "cpu_model", lambda: "another machine")
        other = TimingCache(path, "cpu")
        assert other.get(CALL) is None
        other.put(CALL, CallTime(2.0, 2.0))
        other.save()
    assert TimingCache(path, "cpu").get(CALL) == CallTime(1.0, 1.0)


def test_number_of_threads_is_part_of_the_environment(path):
    before = torch.get_num_threads()
    cache = TimingCache(path, "cpu")
    cache.put(CALL, CallTime(1.0, 1.0))
    cache.save()
    try:
        torch.set_num_threads(before + 1)
        assert TimingCache(path, "cpu").get(CALL) is None
    finally:
        torch.set_num_threads(before)


def test_processes_share_a_file(path):
    first, second = TimingCache(path, "cpu"), TimingCache(path, "cpu")
    first.put(CALL, CallTime(1.0, 1.0))
    second.put({"steps": ["pack"]}, CallTime(2.0, 2.0))
    first.save()
    second.save()
    assert len(TimingCache(path, "cpu")) == 2


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"{", b"[]", b"7", b'{"kind": "plan"}', b'{"layers": 3}', b"[" * 100_000],
    ids=["empty", "no text", "cut off", "list", "number", "foreign", "another file", "deep"],
)
def test_foreign_files_are_left_as_they_are(tmp_path, content):
    path = tmp_path / "times.json"
    path.write_bytes(content)
    with pytest.warns(UserWarning, match="is left out") as caught:
        cache = TimingCache(path, "cpu")
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        cache.put(CALL, CallTime(1.0, 1.0))
        cache.save()
    assert path.read_bytes() == content
    assert cache.get(CALL) == CallTime(1.0, 1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 0},
        {"more": 1},
        {"environments": 3},
        {"environments": [{"environment": {}}]},
        {"environments": [{"environment": {}, "times": {"a": [1.0]}}]},
        {"environments": [{"environment": {}, "times": {"a": [1.0, -1.0]}}]},
        {"environments": [{"environment": {}, "times": {"a": [float("nan"), 1.0]}}]},
        {"environments": [{"environment": {}, "times": {"a": [True, 1.0]}}]},
        {"environments": [{"environment": [], "times": {}}]},
    ],
)
def test_our_own_files_with_other_content_begin_anew(path, change):
    cache = TimingCache(path, "cpu")
    cache.put(CALL, CallTime(1.0, 1.0))
    cache.save()
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.warns(UserWarning, match="begun anew") as caught:
        _add(path)
    assert len(caught) == 1
    assert TimingCache(path, "cpu").get(CALL) == CallTime(2.0, 2.0)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_takes_positive_finite_times_alone(path, seconds):
    with pytest.raises(ValueError, match="positive, finite"):
        TimingCache(path, "cpu").put(CALL, CallTime(seconds, 1.0))


def test_in_memory():
    cache = TimingCache(None, "cpu")
    cache.put(CALL, CallTime(1.0, 1.0))
    cache.save()
    assert cache.get(CALL) == CallTime(1.0, 1.0)


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    cache = TimingCache(tmp_path / "file" / "times.json", "cpu")
    cache.put(CALL, CallTime(1.0, 1.0))
    with pytest.warns(UserWarning, match="cannot be written"):
        cache.save()
    assert cache.get(CALL) == CallTime(1.0, 1.0)
