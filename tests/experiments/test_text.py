"""Training on text: batches, scores, stages, going on after a stop."""

import math

import pytest
import torch
from text_training import (
    character_task,
    decoder_recipe,
    make_tokens,
    recipe,
    sentence_task,
)

from bitgnn.nn.multistage import activation_quantizers
from bitgnn.train.keeping import Keeping
from experiments.text.batches import Batches
from experiments.text.sentences import score
from experiments.training.loop import train
from experiments.training.recorded import side_by_side


def trained(task, wanted, seed=0, **options):
    return side_by_side([train(task, wanted, wanted.epochs, seed, **options)], task.device)[0]


@pytest.mark.parametrize("size", [1, 7, 16, 150])
@pytest.mark.parametrize("seed", [None, 3])
def test_every_sentence_comes_once_an_epoch(size, seed):
    part = make_tokens().train
    batches = Batches(part, size)
    plan = batches.epoch(seed)
    assert len(plan.lengths) == len(plan.index) == len(plan.weight) == batches.steps
    counted = plan.index[plan.weight == 1]
    assert sorted(counted.tolist()) == list(range(150))
    for length, index in zip(plan.lengths, plan.index, strict=True):
        assert part.lengths[index].max() <= length
    assert plan.weight.sum() == 150


def test_scores_by_hand():
    counts = torch.tensor([[6.0, 2.0], [1.0, 3.0]])
    assert score(counts, "accuracy") == pytest.approx(9 / 12)
    assert score(counts, "matthews") == pytest.approx((6 * 3 - 2 * 1) / math.sqrt(8 * 4 * 7 * 5))
    assert score(torch.tensor([[5.0, 0.0], [7.0, 0.0]]), "matthews") == 0
    assert score(torch.tensor([[0.0, 5.0], [7.0, 0.0]]), "matthews") == pytest.approx(-1)
    assert score(torch.zeros(2, 2), "accuracy") == 0
    with pytest.raises(ValueError, match="metric must be 'accuracy' or 'matthews', got 'f1'"):
        score(counts, "f1")


def test_stages_lower_levels_and_project_scales():
    wanted = recipe(precision="bwta", epochs=8, levels=(4, 3, 2, 1))
    task = sentence_task(wanted)
    result = trained(task, wanted)
    assert [row["level"] for row in result.history] == [4, 4, 3, 2, 1, 1, 1, 1]
    assert list(result.factors) == ["3", "2", "1"]
    names = set(activation_quantizers(task.model))
    assert all(set(factors) == names for factors in result.factors.values())
    assert all(quantizer.level == 1 for quantizer in activation_quantizers(task.model).values())
    # Learning rates start anew with each stage and fall within the last.
    rates = [row["learning_rate"] for row in result.history]
    assert rates[4] == max(rates)
    assert rates[4] > rates[5] > rates[6] > rates[7]


class Stop(Exception):
    pass


# Between two stages, within the last.
@pytest.mark.parametrize("stop", [4, 6])
def test_a_stopped_training_goes_on_bit_for_bit(tmp_path, stop):
    wanted = recipe(precision="bwta", epochs=8, levels=(3, 2, 1), dropout=0.2, patience=1)
    whole = trained(sentence_task(wanted), wanted, seed=4)
    keeping = Keeping(tmp_path / "run.checkpoint", None, 0.0)
    seen = []

    def count(epochs):
        seen.append(epochs)
        if len(seen) == stop:
            raise Stop

    with pytest.raises(Stop):
        trained(sentence_task(wanted), wanted, seed=4, keeping=keeping, on_epochs=count)
    task = sentence_task(wanted)
    torch.manual_seed(99)
    again = trained(task, wanted, seed=4, keeping=keeping)
    assert all(torch.equal(whole.state[key], again.state[key]) for key in whole.state)
    assert again.factors == whole.factors

    def without_time(rows):
        return [{key: row[key] for key in row if key != "seconds"} for row in rows]

    assert without_time(again.history) == without_time(whole.history)


def test_only_chosen_layers_of_a_decoder_are_quantised():
    wanted = decoder_recipe(precision="bwta", epochs=4, levels=(3, 1))
    only = ["layers.0.feed_forward.up", "layers.1.attention.out"]
    task = character_task(wanted, only=only)
    result = trained(task, wanted)
    levels = {
        name.removesuffix(".input_quantizer"): quantizer.level
        for name, quantizer in activation_quantizers(task.model).items()
    }
    assert [name for name, level in levels.items() if level == 1] == sorted(only)
    assert sum(level is None for level in levels.values()) == len(levels) - 2
    assert set(result.factors["1"]) == {f"{name}.input_quantizer" for name in only}
