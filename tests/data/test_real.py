"""The real graphs, where they are at hand: sizes as published, splits, nothing written there."""

import pytest
import torch

from bitgnn.data import DataError, load

SIZES = {
    "Cora": (2_708, 10_556, 1_433, 7),
    "CiteSeer": (3_327, 9_104, 3_703, 6),
    "PubMed": (19_717, 88_648, 500, 3),
    "Photo": (7_650, 238_162, 745, 8),
    "Cora_ML": (2_995, 16_316, 2_879, 7),
    "Minesweeper": (10_000, 78_804, 7, 2),
    "Tolokers": (11_758, 1_038_000, 10, 2),
}
SLOW = {
    "CS": (18_333, 163_788, 6_805, 15),
    "Cornell5": (18_660, 1_581_554, 4_735, 2),
    "Flickr": (89_250, 899_756, 500, 7),
}


def load_or_skip(name, root, **options):
    try:
        return load(name, root, **options)
    except DataError as error:
        if "raw files not found" not in str(error):
            raise
        pytest.skip(f"{name} is not at hand: {error}")


@pytest.mark.parametrize("name", [*SIZES, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)])
def test_sizes(real_data, name):
    features = "synthetic" if name == "Flickr" else None
    data = load_or_skip(name, real_data, features=features)
    assert (*data.x.shape, data.num_edges, int(data.y.max()) + 1) == tuple(
        (SIZES | SLOW)[name][i] for i in (0, 2, 1, 3)
    )
    masks = torch.stack([data.train_mask, data.val_mask, data.test_mask])
    assert masks.sum(0).max() == 1
    assert masks.any(1).all()
    assert data.synthetic == (name == "Flickr")


def test_seeded_split_of_shchur(real_data):
    data = load_or_skip("Photo", real_data, seed=1)
    assert torch.bincount(data.y[data.train_mask]).tolist() == [20] * 8
    assert torch.bincount(data.y[data.val_mask]).tolist() == [30] * 8
    assert int(data.test_mask.sum()) == 7_650 - 50 * 8
