"""Training on images: batches, steps, going on after a stop, configurations, the whole command."""

import gzip
import json
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from bitgnn.data import ImageData, ImageSet
from bitgnn.nn import BinaryLinear
from bitgnn.train import ConfigError, TrainingError
from bitgnn.train.images import (
    ImageConfig,
    ImageRecipe,
    command,
    load_image_config,
    train_network,
    unit,
)
from bitgnn.train.images.pixels import TrainingImages, normalized
from bitgnn.train.images.record import image_chart, image_record
from bitgnn.train.images.session import ImageSession
from bitgnn.train.loop import Keeping

SIZE, CLASSES = 6, 3


@pytest.fixture(autouse=True)
def _one_thread():
    """Tiny operators on several threads wait for each other, on a busy machine for long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def tiny_network(binary=True):
    linear = BinaryLinear if binary else nn.Linear
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(SIZE * SIZE, 32),
        nn.BatchNorm1d(32),
        linear(32, CLASSES),
        nn.BatchNorm1d(CLASSES),
    )


def make_data(count=96, device="cpu"):
    """Images whose class is which third of the rows is bright."""
    generator = torch.Generator().manual_seed(5)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    images = torch.randint(0, 120, (count, 1, SIZE, SIZE), generator=generator)
    for number, label in enumerate(labels.tolist()):
        images[number, :, 2 * label : 2 * label + 2] += 90
    half = count // 2
    parts = [
        ImageSet(images[part].to(torch.uint8), labels[part])
        for part in (slice(0, half), slice(half, None))
    ]
    return ImageData("thirds", *parts, ("top", "middle", "bottom")).to(device)


def recipe(**changes):
    return ImageRecipe(**{"epochs": 6, "batch_size": 16, "learning_rate": 0.02, **changes})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_byte_is_exact(dtype):
    levels = torch.arange(256, dtype=torch.uint8)
    assert ((normalized(levels, dtype).double() * 64 + 128) == levels.double()).all()


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
    data, model = make_data(device=device), tiny_network().to(device)
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


def test_clipping_can_be_left_out():
    model = tiny_network()
    with torch.no_grad():
        model[3].weight.mul_(20)
    train_network(model, make_data(), recipe(epochs=1, clip=False))
    assert model[3].weight.abs().max() > 1


@pytest.mark.parametrize("stop", [1, 4])
def test_a_stopped_training_ends_as_if_nothing_had_happened(stop, tmp_path):
    data, how = make_data(), recipe(crop=1, flip=True)
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


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path):
    from bitgnn.train import CheckpointError

    ImageSession(tiny_network(), recipe()).save(tmp_path / "kept")
    with pytest.raises(CheckpointError, match="checkpoint of another recipe"):
        ImageSession(tiny_network(), recipe(epochs=7)).resume(tmp_path / "kept")
    assert not ImageSession(tiny_network(), recipe()).resume(tmp_path / "absent")


def test_a_teacher_takes_part():
    data = make_data()
    results = []
    for labels in (None, data.train.labels, 2 - data.train.labels):
        teacher, how = None, recipe(epochs=10)
        if labels is not None:
            torch.manual_seed(2)
            teacher = tiny_network(binary=False)
            taught = replace(data, train=replace(data.train, labels=labels))
            train_network(teacher, taught, recipe(epochs=10))
            how = recipe(epochs=10, teacher="fp32", distill=20.0)
        torch.manual_seed(3)
        results.append(train_network(tiny_network(), data, how, teacher=teacher))
    plain, helped, misled = (result.history[-1]["test_accuracy"] for result in results)
    assert min(plain, helped) > 0.9
    assert misled < 0.6  # it learns the teacher's swapped classes


def test_what_cannot_be_trained_is_refused():
    with pytest.raises(TrainingError, match="batch_size must be at most the 48 training images"):
        train_network(tiny_network(), make_data(), recipe(batch_size=49))
    model = tiny_network()
    nn.init.constant_(model[4].weight, float("nan"))
    with pytest.raises(TrainingError, match="the loss of epoch 0 is nan"):
        train_network(model, make_data(), recipe())


@pytest.mark.cuda
def test_recorded_steps_train_like_eager_ones():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    from bitgnn.train.images.step import TrainStep, make_optimizer

    data, how = make_data(device="cuda"), recipe(activations="float32")
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


CONFIG = """
name: tiny
title: A tiny network
dataset: mnist
model: mlp
seeds: 2
published: [50, 60.5]
forms:
  fp32: {epochs: 3, batch_size: 8, learning_rate: 0.01, weight_decay: 0.1}
  binary: {epochs: 2, batch_size: 8, learning_rate: 0.01, teacher: fp32, distill: 1.0}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("epochs: 3", "epochs: 0", "forms.fp32.epochs.*found 0"),
        (
            "epochs: 3",
            "epochs: 3, rate: 3",
            "unknown key 'forms.fp32.rate'.*expected one of epochs",
        ),
        ("model: mlp", "model: lenet", "key 'model': found 'lenet'"),
        ("teacher: fp32, ", "", "forms.binary: distill above 0 and teacher need each other"),
        ("teacher: fp32", "teacher: binary", "teacher must name a form trained before"),
        ("  fp32:", "  half:", "forms.half: a form must be one of fp32, binary"),
        ("seeds: 2", "seed: 2", "unknown key 'seed'.*expected one of name, title, dataset"),
    ],
)
def test_mistakes_in_a_configuration_are_named(old, new, message, tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(CONFIG.replace(old, new, 1))
    with pytest.raises(ConfigError, match=f"tiny.yaml: .*{message}"):
        load_image_config(path)


def test_shipped_configurations_load():
    from pathlib import Path

    folder = Path(__file__).parents[2] / "configs" / "images"
    names = {load_image_config(path).name for path in folder.glob("*.yaml")}
    assert names == set(command.EXPERIMENTS) == {path.stem for path in folder.glob("*.yaml")}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A configuration, an MNIST of few images, and tiny networks in the place of the papers'."""
    monkeypatch.setattr(
        unit, "build_network", lambda config, form, data: tiny_network(form != "fp32")
    )
    monkeypatch.setattr(command, "EXPERIMENTS", ("tiny",))
    (tmp_path / "configs" / "images").mkdir(parents=True)
    (tmp_path / "configs" / "images" / "tiny.yaml").write_text(CONFIG)
    raw = tmp_path / "data" / "mnist" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    data = make_data()
    for name, part in (("train", data.train), ("t10k", data.test)):
        for kind, array in (("images-idx3", part.images[:, 0]), ("labels-idx1", part.labels)):
            header = bytes((0, 0, 8, array.dim())) + struct.pack(f">{array.dim()}I", *array.shape)
            content = header + array.numpy().astype(np.uint8).tobytes()
            (raw / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(content))
    return tmp_path


def run(project, *arguments):
    places = ["--data-root", project / "data", "--output", project / "runs", "--device", "cpu"]
    return command.main([str(a) for a in [*places, "--only", "tiny", *arguments]], project)


def test_the_command_trains_records_and_finds_its_runs_again(project, capsys, monkeypatch):
    assert run(project, "--frozen") == 0
    record = json.loads((project / "scripts/results/images_tiny.json").read_text())
    assert (project / "scripts/results/images.png").read_bytes().startswith(b"\x89PNG")
    assert record["dataset"] == {"name": "mnist", "train": 48, "test": 48, "image": [1, 6, 6]}
    for form, epochs in (("fp32", 3), ("binary", 2)):
        runs = record["forms"][form]["runs"]
        assert [one["seed"] for one in runs] == [0, 1]
        assert all(len(one["history"]) == epochs for one in runs)
        last = [100 * one["history"][-1]["test_accuracy"] for one in runs]
        assert record["forms"][form]["accuracy_mean_percent"] == pytest.approx(sum(last) / 2)
        assert runs[0]["history"] != runs[1]["history"]

    def nothing(*_, **__):
        raise AssertionError("trained anew")

    monkeypatch.setattr(unit, "train_network", nothing)
    assert run(project, "--frozen") == 0
    again = json.loads((project / "scripts/results/images_tiny.json").read_text())
    assert again["forms"] == record["forms"]


def test_an_interrupt_leaves_what_is_needed_to_go_on(project, capsys, monkeypatch):
    train = unit.train_network
    monkeypatch.setattr(unit, "train_network", interrupted_behind(2, train))
    assert run(project, "--frozen", "--checkpoint-every", "0") == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert (project / "runs/tiny/runs/fp32-0.checkpoint").is_file()
    monkeypatch.setattr(unit, "train_network", train)
    assert run(project, "--frozen") == 0
    stopped = json.loads((project / "runs/tiny/runs/fp32-0.json").read_text())["history"]
    assert run(project, "--frozen", "--output", project / "other") == 0
    whole = json.loads((project / "other/tiny/runs/fp32-0.json").read_text())["history"]
    assert [row["test_accuracy"] for row in stopped] == [row["test_accuracy"] for row in whole]
    assert [row["train_loss"] for row in stopped] == [row["train_loss"] for row in whole]


def interrupted_behind(epochs, train):
    def interrupted(*arguments, on_epochs, **options):
        seen = []

        def count_them(count):
            seen.append(count)
            if sum(seen) >= epochs:
                raise KeyboardInterrupt

        return train(*arguments, on_epochs=count_them, **options)

    return interrupted


def test_mistakes_on_the_command_line_are_one_line(project, capsys):
    assert run(project, "--epochs", "0") == 1
    assert "train_images: error: --epochs must be at least 1, got 0" in capsys.readouterr().err
    assert run(project, "--only", "absent") == 1
    assert "absent.yaml: cannot be read" in capsys.readouterr().err
    assert run(project, "--seeds", "1", "--data-root", str(project)) == 1
    assert "mnist: raw files not found" in capsys.readouterr().err


def test_a_frozen_network_that_differs_fails_the_command(project, capsys, monkeypatch):
    from bitgnn.train.images.proof import FrozenCheck

    def differs(model, part, device):
        return FrozenCheck("cpu", 48, 47, 1.0, 0.5)

    monkeypatch.setattr(command, "check_frozen", differs)
    assert run(project, "--seeds", "1", "--epochs", "1") == 1
    assert "frozen on cpu: 1 of 48 differ" in capsys.readouterr().err
    record = json.loads((project / "scripts/results/images_tiny.json").read_text())
    frozen = record["forms"]["binary"]["runs"][0]["frozen"]
    assert frozen == [vars(differs(None, None, None))]
    assert record["forms"]["fp32"]["runs"][0]["frozen"] == []


def test_records_of_a_single_seed_have_no_spread():
    config = ImageConfig.model_validate(
        {"name": "a", "title": "A", "dataset": "mnist", "model": "mlp",
         "forms": {"binary": recipe(epochs=1).model_dump()}}
    )  # fmt: skip
    row = {"epoch": 0, "train_loss": 1.0, "train_accuracy": 0.5, "test_accuracy": 0.25,
           "learning_rate": 0.1, "seconds": 2.0}  # fmt: skip
    done = unit.ImageRun("binary", 0, 0.25, 2.0, [row], "a machine")
    record = image_record(config, make_data(), [(done, [])])
    assert record["forms"]["binary"]["accuracy_std_points"] == 0.0
    assert image_chart([record]).startswith(b"\x89PNG")


def test_the_table_names_accuracies_goals_and_frozen_networks(project):
    from bitgnn.bench.images_tables import images_table

    assert run(project, "--frozen") == 0
    record = json.loads((project / "scripts/results/images_tiny.json").read_text())
    for one in record["forms"]["binary"]["runs"]:
        one["frozen"] = [{"device": "cuda", "images": 48, "equal": 47 + one["seed"]}]
    record["forms"]["binary"] |= {"accuracy_mean_percent": 49.96, "accuracy_std_points": 0.26}
    text = images_table([record])
    assert "| A tiny network | 2 | " in text
    assert "| 50.0 ± 0.3 | 50.0 to 60.5 | 3, 2 | " in text
    assert "| cuda: 95 of 96 |" in text
    assert "- MISSED: A tiny network: binary: 49.96, the papers' 50.0 or more" in text
    record["forms"]["binary"]["accuracy_mean_percent"] = 50.04
    assert "- met: A tiny network: binary: 50.04" in images_table([record])


@pytest.mark.parametrize("name", ["mlp", "vgg"])
def test_frozen_networks_are_compared_on_every_image(name, device):
    from bitgnn.models import IMAGE_NETWORKS
    from bitgnn.train.images import check_frozen

    torch.manual_seed(6)
    model = IMAGE_NETWORKS[name](precision="binary", classes=4, width=1 / 32).to(device).train()
    images = torch.randint(0, 256, (9, *model.image), dtype=torch.uint8, device=device)
    part = ImageSet(images, torch.randint(4, (9,), device=device))
    with torch.no_grad():
        model(normalized(images))  # statistics for the batch norms
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    found = check_frozen(model, part, device)
    assert (found.images, found.equal) == (9, 9)
    assert found.largest_difference < 1e-4
    assert found.device == device.type
    assert all(torch.equal(weights[key], value) for key, value in model.state_dict().items())


def test_a_differing_frozen_network_is_counted(monkeypatch):
    import bitgnn
    from bitgnn.train.images import check_frozen

    data = make_data()
    scores = torch.zeros(48, CLASSES)
    scores[:, 1] = 1.0
    scores[:5, 2] = 2.0
    model = tiny_network().eval()
    with torch.no_grad():
        expected = model(normalized(data.test.images)).argmax(1)

    class Frozen(nn.Module):
        def forward(self, x):
            return scores

    monkeypatch.setattr(bitgnn, "freeze", lambda model: Frozen())
    found = check_frozen(model, data.test, "cpu")
    assert found.equal == int((scores.argmax(1) == expected).sum()) < 48
    assert found.test_accuracy == int((scores.argmax(1) == data.test.labels).sum()) / 48
