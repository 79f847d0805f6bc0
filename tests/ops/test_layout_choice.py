"""The default layout follows device, density and width."""

import pytest

from bitgnn.ops.layout_choice import expected_microseconds


@pytest.mark.parametrize(
    ("rows", "slices", "edges", "words", "sliced_wins"),
    [
        (2_708, 1, 13_000, 4, False),  # Cora: too small
        (89_250, 7, 900_000, 4, False),  # Flickr: too sparse
        (232_965, 17, 114_500_000, 4, True),  # Reddit
        (232_965, 17, 114_500_000, 8, True),
        (232_965, 17, 13_300_000, 4, False),  # few neighbours in a slice
        (60_000, 5, 8_500_000, 4, True),
        (60_000, 5, 8_500_000, 2, True),
        (100_000, 8, 40_000_000, 1, True),
        (0, 1, 0, 4, False),
    ],
)
def test_expected_times(rows, slices, edges, words, sliced_wins):
    csr, sliced = expected_microseconds(rows, slices, edges, words)
    assert csr > 0
    assert sliced > 0
    assert (sliced < csr) == sliced_wins
