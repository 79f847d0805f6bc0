"""Records are written whole or not at all; times, sizes and ratios have three digits and a unit."""

import json

import pytest

from bitgnn.measure.report import format_bytes, format_ratio, format_seconds, write_json


def test_json_round_trip_makes_folders(tmp_path):
    path = tmp_path / "a" / "b.json"
    write_json(path, {"x": [1, 2.5, None]})
    assert json.loads(path.read_text()) == {"x": [1, 2.5, None]}


@pytest.mark.parametrize("record", [{"x": float("nan")}, {"x": object()}])
def test_a_failed_write_leaves_the_old_file(tmp_path, record):
    path = tmp_path / "old.json"
    write_json(path, {"x": 1})
    with pytest.raises((TypeError, ValueError)):
        write_json(path, record)
    assert json.loads(path.read_text()) == {"x": 1}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.5, "1.50 s"), (0.0123, "12.3 ms"), (999.4e-6, "999 µs"), (5e-9, "5.00 ns")],
)
def test_seconds(seconds, text):
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (2048, "2.00 KiB"), (3 * 2**30, "3.00 GiB")]
)
def test_bytes(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(("ratio", "text"), [(0.712, "0.71×"), (23.46, "23.5×"), (123.4, "123×")])
def test_ratio(ratio, text):
    assert format_ratio(ratio) == text
