"""Other ways for levels to fall: what each does to scales, and that they end with their context."""

import importlib
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from bitgnn.distillation import stages
from bitgnn.distillation.batches import Batched
from bitgnn.nn import BWTALinear
from bitgnn.nn.multistage import activation_quantizers, enter_level, initialize_scales, set_level

EXPERIMENTS = Path(__file__).resolve().parents[2] / "scripts" / "experiments"
sys.path.insert(0, str(EXPERIMENTS))
ways = importlib.import_module("falling")
texts = importlib.import_module("sentences")
sys.path.remove(str(EXPERIMENTS))


@pytest.fixture
def prepared():
    torch.manual_seed(0)
    model = nn.Sequential(BWTALinear(24, 16, level=4), nn.Tanh(), BWTALinear(16, 3, level=4))
    x = torch.randn(50, 24)
    model.eval()
    initialize_scales(model, partial(model, x))
    return model, x


def scales(model):
    return [float(q.scale.detach()) for q in activation_quantizers(model).values()]


def errors(model, inputs):
    found = []
    for quantizer, x in zip(activation_quantizers(model).values(), inputs, strict=True):
        q, scale = quantizer(x)
        found.append(float((q * scale - x).square().sum()))
    return found


def test_none_keeps_scales_and_mean_starts_them_anew(prepared):
    model, x = prepared
    before = scales(model)
    ways.none(model, 2, partial(model, x))
    assert scales(model) == before
    assert {q.level for q in activation_quantizers(model).values()} == {2}
    set_level(model, 4)
    ways.mean(model, 2, partial(model, x))
    # 2 mean|x| / sqrt(L): twice the square root of two, of the same inputs of the first layer.
    assert scales(model)[0] == pytest.approx(before[0] * 2**0.5)


def test_search_has_the_least_error(prepared):
    model, x = prepared
    hidden = model[1](model[0](x)).detach()  # what reaches the second layer at the old level
    ways.search(model, 1, partial(model, x))
    found = errors(model, (x, hidden))
    set_level(model, 4)
    ways.mean(model, 1, partial(model, x))
    assert all(one <= other for one, other in zip(found, errors(model, (x, hidden)), strict=True))
    assert found != errors(model, (x, hidden))


def test_a_way_ends_with_its_context():
    levels = Batched.levels
    with ways.falling("bits"):
        assert Batched.levels == (3, 1)
        assert stages.enter_level is ways.mean
    assert Batched.levels == levels
    assert stages.enter_level is enter_level


def test_cola_is_read_from_its_columns(tmp_path, monkeypatch):
    folder = tmp_path / "glue" / "CoLA"
    folder.mkdir(parents=True)
    for name in ("train", "val", "dev"):
        (folder / f"{name}.tsv").write_text(f"gj04\t1\t\tThe {name} ran.\ngj04\t0\t*\tRan the.\n")
    train, held, test = texts.load_sentences(str(tmp_path), "cola")
    assert train == [("The train ran.", 1), ("Ran the.", 0)]
    assert [held[0][0], test[0][0]] == ["The val ran.", "The dev ran."]
    (folder / "dev.tsv").write_text("gj04\t2\t\tThe dev ran.\n")
    with pytest.raises(texts.DataError, match="line 1 must have a label 0 or 1 and a sentence"):
        texts.load_sentences(str(tmp_path), "cola")
