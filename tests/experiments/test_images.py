"""Training on images: batches, steps, going on after a stop."""

import pytest
import torch
from image_training import make_image_data, recipe, tiny_network
from torch import nn

from bitgnn.train import CheckpointError, TrainingError
from bitgnn.train.keeping import Keeping
from experiments.images.task import ImageTask, TrainingImages, normalized
from experiments.training.loop import TaskSession, TrainStep, train
from experiments.training.recorded import Recorded, side_by_side
from experiments.training.task import EpochTable, make_optimizer


def train_network(model, data, how, **options):
    task = ImageTask(model, data, how)
    return side_by_side([train(task, how, how.epochs, 0, **options)], task.device)[0]


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("crop", [0, 2])
def test_batches_are_shifted_and_mirrored_windows(flip, crop, device):
    images = torch.randint(0, 256, (5, 3, 7, 4), dtype=torch.uint8, device=device)
    index = torch.tensor([4, 0, 0, 2, 1, 4, 3] * 8, device=device)
    batch = TrainingImages(images, flip, crop).batch(index)
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


def test_it_learns_and_keeps_latent_weights_within_reach(device):
    torch.manual_seed(0)
    data, model = make_image_data(device=device), tiny_network().to(device)
    with torch.no_grad():
        model[3].weight.mul_(20)
    trained = train_network(model, data, recipe(epochs=12, activations="float32"))
    assert trained.history[-1]["test_accuracy"] > 0.9
    assert trained.history[-1]["train_loss"] < trained.history[0]["train_loss"]
    assert trained.history[-1]["learning_rate"] < 0.001
    assert model[3].weight.abs().max() <= 1
    assert model[1].weight.abs().max() > 0
    assert not model.training
    assert all(torch.equal(trained.state[k], v.cpu()) for k, v in model.state_dict().items())


@pytest.mark.parametrize("stop", [1, 4])
def test_a_stopped_training_ends_as_if_nothing_had_happened(stop, tmp_path):
    data, how = make_image_data(), recipe(crop=1, flip=True)
    torch.manual_seed(1)
    whole = train_network(tiny_network(), data, how)

    class Stop(Exception):
        pass

    def stop_there(count):
        stop_there.done += count
        if stop_there.done == stop:
            raise Stop

    stop_there.done = 0
    keeping = Keeping(tmp_path / "kept", seconds=0)
    torch.manual_seed(1)
    with pytest.raises(Stop):
        train_network(tiny_network(), data, how, keeping=keeping, on_epochs=stop_there)
    torch.manual_seed(99)
    done = []
    resumed = train_network(tiny_network(), data, how, keeping=keeping, on_epochs=done.append)
    assert done[0] == stop
    assert all(torch.equal(whole.state[key], resumed.state[key]) for key in whole.state)
    for one, other in zip(whole.history, resumed.history, strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}


def image_session(how):
    return TaskSession(ImageTask(tiny_network(), make_image_data(), how), how, how.epochs, 0)


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path):
    image_session(recipe()).save(tmp_path / "kept")
    with pytest.raises(CheckpointError, match="checkpoint of another recipe"):
        image_session(recipe(epochs=7)).resume(tmp_path / "kept")
    assert not image_session(recipe()).resume(tmp_path / "absent")


def test_batches_larger_than_the_data_are_refused():
    with pytest.raises(TrainingError, match="batch_size must be at most the 48 training images"):
        ImageTask(tiny_network(), make_image_data(), recipe(batch_size=49))


@pytest.mark.cuda
def test_recorded_steps_train_like_eager_ones():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    data, how = make_image_data(device="cuda"), recipe(activations="float32")
    states = []
    with torch.cuda.stream(torch.cuda.Stream()):
        for recorded in (True, False):
            torch.manual_seed(4)
            task = ImageTask(tiny_network().cuda().train(), data, how)
            table = EpochTable(task.device)
            step = TrainStep(task, make_optimizer(task), table)
            run = Recorded(step, task.device) if recorded else step
            for _ in range(8):
                plan = task.plan(0)
                table.fill(plan, torch.full((len(plan.lengths), 2), 0.02))
                for length in plan.lengths:
                    run(length)
            states.append(task.model.state_dict() | {"sums": step.sums})
    for key, value in states[0].items():
        torch.testing.assert_close(value, states[1][key], rtol=1e-3, atol=1e-4)
