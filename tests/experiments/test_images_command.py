"""The command that trains networks of images: configurations, records, checks."""

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from image_training import make_image_data, tiny_network

from bitgnn.data import ImageSet
from bitgnn.models import IMAGE_NETWORKS
from bitgnn.train import ConfigError
from bitgnn.train.store import alone_in
from experiments.images import command
from experiments.images.recipe import load_image_config
from experiments.images.record import check_frozen
from experiments.images.task import normalized
from experiments.training import experiment

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
        ("model: mlp", "model: lenet", "key 'model': found 'lenet'"),
        ("teacher: fp32, ", "", "forms.binary: distill above 0 and teacher need each other"),
        ("teacher: fp32", "teacher: binary", "teacher must name a form trained before"),
        ("  fp32:", "  half:", "forms.half: a form must be one of fp32, binary"),
    ],
)
def test_mistakes_in_a_configuration_are_named(old, new, message, tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(CONFIG.replace(old, new, 1))
    with pytest.raises(ConfigError, match=f"tiny.yaml: .*{message}"):
        load_image_config(path)


def test_shipped_configurations_load():
    folder = Path(__file__).parents[2] / "configs" / "images"
    names = {load_image_config(path).name for path in folder.glob("*.yaml")}
    assert names == set(command.EXPERIMENTS) == {path.stem for path in folder.glob("*.yaml")}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A configuration, an MNIST of few images, and tiny networks in the place of the papers'."""
    monkeypatch.setattr(
        command, "build_network", lambda config, form, data: tiny_network(form != "fp32")
    )
    monkeypatch.setattr(command, "EXPERIMENTS", ("tiny",))
    (tmp_path / "configs" / "images").mkdir(parents=True)
    (tmp_path / "configs" / "images" / "tiny.yaml").write_text(CONFIG)
    raw = tmp_path / "data" / "mnist" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    data = make_image_data()
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
    record = json.loads((project / "runs/images_tiny.json").read_text())
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

    monkeypatch.setattr(experiment, "train", nothing)
    assert run(project, "--frozen") == 0
    again = json.loads((project / "runs/images_tiny.json").read_text())
    assert again["forms"] == record["forms"]


def test_two_commands_do_not_share_a_folder(project, capsys):
    (project / "runs").mkdir()
    with alone_in(project / "runs"):
        assert run(project, "--frozen") == 1
    assert "train_images: error: " in capsys.readouterr().err
    assert not list((project / "runs").glob("*.json"))


def test_mistakes_on_the_command_line_are_one_line(project, capsys):
    assert run(project, "--epochs", "0") == 1
    assert "train_images: error: --epochs must be at least 1, got 0" in capsys.readouterr().err
    assert run(project, "--only", "absent") == 1
    assert "absent.yaml: cannot be read" in capsys.readouterr().err
    assert run(project, "--seeds", "1", "--data-root", str(project)) == 1
    assert "mnist: raw files not found" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["mlp", "vgg"])
def test_frozen_networks_are_compared_on_every_image(name, device):
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
