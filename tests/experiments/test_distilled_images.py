"""Students of one teacher: a stopped run goes on, an interrupted student is no result."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

import bitgnn
from bitgnn.models import resnet

EXPERIMENTS = Path(__file__).resolve().parents[2] / "scripts" / "experiments"


def drawn(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8)
    return images, torch.arange(count) % 10


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    import distilled_images

    torch.manual_seed(0)
    data = drawn(100), drawn(20)
    monkeypatch.setattr(distilled_images, "load_images", lambda *_: data)
    narrow = partial(resnet, 14, "fp32", width=1 / 16)
    network = replace(distilled_images.NETWORKS[TASK], build=narrow)
    monkeypatch.setitem(distilled_images.NETWORKS, TASK, network)
    yield distilled_images
    sys.modules.pop("distilled_images")


TASK = "ResNet-14, CIFAR-10"
CASE = {
    "task": TASK, "seed": 0, "epochs": 2, "forms": ["1", "2:last=keep:learning_rate=0.004"]
}  # fmt: skip


def test_a_stopped_run_keeps_its_teacher_and_its_students(script, tmp_path, monkeypatch):
    distill, calls = bitgnn.distill, []

    def stopped(*args, **options):
        if calls:
            raise KeyboardInterrupt
        calls.append(options["trained"])
        return distill(*args, **options)

    monkeypatch.setattr(bitgnn, "distill", stopped)
    with pytest.raises(KeyboardInterrupt):
        script.run((CASE, None, "cpu"), tmp_path / "stopped")
    monkeypatch.setattr(
        bitgnn, "distill", lambda *a, **o: calls.append(o["trained"]) or distill(*a, **o)
    )
    found = script.run((CASE, None, "cpu"), tmp_path / "stopped")
    assert calls == [False, True]
    again = script.run((CASE, None, "cpu"), tmp_path / "whole")
    for form, student in found["students"].items():
        other = again["students"][form]
        assert {**student, "seconds": 0} == {**other, "seconds": 0}


def test_an_interrupted_student_is_no_result(script, tmp_path, monkeypatch):
    distill = bitgnn.distill
    monkeypatch.setattr(
        bitgnn, "distill", lambda *a, **o: replace(distill(*a, **o), interrupted=True)
    )
    with pytest.raises(KeyboardInterrupt):
        script.run((CASE, None, "cpu"), tmp_path)
    assert not list(tmp_path.rglob("*.json"))
