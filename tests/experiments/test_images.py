"""Training on images: batches, steps, going on after a stop."""

import pytest
import torch
from image_training import make_image_data, recipe, tiny_network
from torch import nn

from bitgnn.train import CheckpointError
from bitgnn.train.keeping import Keeping
from experiments.images.loop import ImageSession, train_network
from experiments.images.step import TrainingImages, TrainStep, make_optimizer, normalized


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
    model = tiny_network()
    return ImageSession(model, how, make_optimizer(model, how))


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path):
    image_session(recipe()).save(tmp_path / "kept")
    with pytest.raises(CheckpointError, match="checkpoint of another recipe"):
        image_session(recipe(epochs=7)).resume(tmp_path / "kept")
    assert not image_session(recipe()).resume(tmp_path / "absent")


@pytest.mark.cuda
def test_recorded_steps_train_like_eager_ones():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    data, how = make_image_data(device="cuda"), recipe(activations="float32")
    states = []
    for eager in (0, 100):
        torch.manual_seed(4)
        model = tiny_network().cuda().train()
        images = TrainingImages(data.train.images, flip=False, crop=0)
        step = TrainStep(model, make_optimizer(model, how), how, images, data.train.labels)
        step._eager -= eager
        for number in range(20):
            step(torch.arange(number, number + 16, device="cuda"))
        assert (step._graph is None) == bool(eager)
        states.append(model.state_dict() | {"loss": step.loss, "right": step.right})
    for key, value in states[0].items():
        torch.testing.assert_close(value, states[1][key], rtol=1e-3, atol=1e-4)
