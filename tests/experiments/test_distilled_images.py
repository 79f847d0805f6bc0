"""The script that distills a ResNet-14 on small images."""

import sys
from pathlib import Path

import pytest
import torch

from bitgnn.data import ImageData, ImageSet
from bitgnn.models import resnet

EXPERIMENTS = Path(__file__).resolve().parents[2] / "scripts" / "experiments"


def drawn(count: int) -> ImageSet:
    images = torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8)
    return ImageSet(images, torch.arange(count) % 10)


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    import distilled_images

    torch.manual_seed(0)
    data = ImageData("drawn", drawn(100), drawn(20), tuple("0123456789"))
    monkeypatch.setattr(distilled_images, "load_images", lambda *_: data)
    narrow = lambda *sizes, width=1.0: resnet(*sizes, width=width / 16)  # noqa: E731
    monkeypatch.setattr(distilled_images, "resnet", narrow)
    yield distilled_images
    sys.modules.pop("distilled_images")


def test_students_of_several_widths_learn_from_one_teacher(script):
    case = {"seed": 0, "epochs": 2, "forms": ["1", "2:learning_rate=0.004"]}
    found = script.run((case, None, "cpu"))
    assert list(found["students"]) == case["forms"]
    teachers = {student["teacher"] for student in found["students"].values()}
    assert len(teachers) == 1
    for student in found["students"].values():
        assert student["test"] == student["trained"]  # frozen and trained agree
        assert student["gap"] == pytest.approx(100 * (student["teacher"] - student["test"]))
        assert len(student["history"]) == 2
    rows = script.summary([found])
    assert [row["form"] for row in rows] == case["forms"]
    assert rows[0]["runs"] == 1
