"""Tables: goals are never rounded up to reached ones."""

import pytest

from bench.report import format_reached, markdown_table


@pytest.mark.parametrize(
    ("part", "text"), [(0.0, "0%"), (0.29, "29%"), (0.9972, "99%"), (1.0, "100%"), (1.289, "128%")]
)
def test_a_missed_goal_is_not_rounded_to_a_reached_one(part, text):
    assert format_reached(part) == text


def test_table():
    table = markdown_table(["a", "b"], [["x", "1"], ["y", "2"]])
    assert table == "| a | b |\n| :--- | ---: |\n| x | 1 |\n| y | 2 |\n"
