"""Batches of augmented images."""

from pathlib import Path

import pytest
import torch
from torch import nn

EXPERIMENTS = Path(__file__).resolve().parents[2] / "scripts" / "experiments"


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("crop", [0, 2])
def test_batches_are_shifted_and_mirrored_windows(flip, crop, device, monkeypatch):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    from augmented_images import AugmentedImages, normalized

    images = torch.randint(0, 256, (5, 3, 7, 4), dtype=torch.uint8, device=device)
    index = torch.tensor([4, 0, 0, 2, 1, 4, 3] * 8, device=device)
    batch = AugmentedImages(images, flip, crop).batch(index)
    assert batch.is_contiguous(memory_format=torch.channels_last)
    framed = nn.functional.pad(images, (crop,) * 4, value=128)
    seen = set()
    for image, number in zip(batch, index.tolist(), strict=True):
        options = {
            (top, left, mirrored): normalized(
                window.flip(-1) if mirrored else window  # mirrored first, then shifted
            )
            for top in range(2 * crop + 1)
            for left in range(2 * crop + 1)
            for mirrored in ((False, True) if flip else (False,))
            for window in [
                framed[number, :, top : top + 7, (2 * crop - left if mirrored else left) :][..., :4]
            ]
        }
        found = [key for key, wanted in options.items() if torch.equal(image, wanted)]
        assert found
        seen.update(found)
    assert len(seen) > 4 * crop
    assert {mirrored for *_, mirrored in seen} == ({False, True} if flip else {False})
