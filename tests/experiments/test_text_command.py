"""The command that trains on text: its files, going on, records, pictures, configurations."""

import json
from pathlib import Path

import pytest
import yaml
from text_training import SIZES

from bitgnn.train import ConfigError
from experiments.text.command import EXPERIMENTS, main
from experiments.text.recipe import DecoderConfig, TextConfig, load_text_config
from experiments.training import experiment

CONFIGS = Path(__file__).parents[2] / "configs" / "text"


@pytest.fixture
def place(tmp_path):
    """Sentences whose first word tells their class, and tiny configurations."""
    pytest.importorskip("tokenizers")
    folder = tmp_path / "data" / "glue" / "SST-2"
    folder.mkdir(parents=True)
    for name, count in (("train", 70), ("dev", 20)):
        lines = [f"{i % 2}\t{('bad', 'good')[i % 2]} film number {i}" for i in range(count)]
        (folder / f"{name}.tsv").write_text("\n".join(["label\tsentence", *lines]) + "\n")
    configs = tmp_path / "configs"
    configs.mkdir()
    student = {
        "precision": "bwta", "levels": [2, 1], "epochs": 3, "batch_size": 16,
        "learning_rate": 0.002, "teacher": "fp32", "distill": {},
    }  # fmt: skip
    teacher = {"precision": "fp32", "epochs": 2, "batch_size": 16, "learning_rate": 0.002}
    sst2 = {
        "name": "sst2", "title": "made", "dataset": "sst2", "seeds": 2, "vocabulary": 60,
        "network": {**SIZES, "length": 16}, "forms": {"fp32": teacher, "bwta_level": student},
    }  # fmt: skip
    more = {"steps": 4}
    decoder = {
        "name": "decoder", "title": "letters", "datasets": ["sst2"],
        "network": {**SIZES, "length": 16},
        "forms": {"fp32": {**teacher, **more}, "share_30": {**student, **more, "share": 0.3}},
    }  # fmt: skip
    (configs / "sst2.yaml").write_text(yaml.safe_dump(sst2, sort_keys=False))
    (configs / "decoder.yaml").write_text(yaml.safe_dump(decoder, sort_keys=False))
    return tmp_path


def call(place, *arguments, only=("sst2", "decoder")):
    return main(
        [
            "--only", *only, "--data-root", str(place / "data"), "--output", str(place / "runs"),
            "--results", str(place / "results"), "--configs", str(place / "configs"),
            "--device", "cpu", *arguments,
        ]
    )  # fmt: skip


def test_runs_records_and_pictures(place, capsys):
    assert call(place) == 0
    record = json.loads((place / "results" / "text_sst2.json").read_text())
    assert record["metric"] == "accuracy"
    assert record["dataset"] == {
        "unit": "sentences", "vocabulary": record["dataset"]["vocabulary"], "train": 67,
        "validation": 3, "test": 20,
    }  # fmt: skip
    entry = record["forms"]["bwta_level"]
    assert [run["seed"] for run in entry["runs"]] == [0, 1]
    scores = [100 * run["test_score"] for run in entry["runs"]]
    assert entry["test_mean"] == pytest.approx(sum(scores) / 2)
    assert [row["level"] for row in entry["runs"][0]["history"]] == [2, 1, 1]
    assert list(entry["runs"][0]["factors"]) == ["1"]
    decoder = json.loads((place / "results" / "text_decoder.json").read_text())
    # 30 % of 14 linear layers.
    assert len(decoder["forms"]["share_30"]["runs"][0]["layers"]) == 4
    assert decoder["metric"] == "perplexity"
    # Packed layers answer as trained ones do, position by position.
    frozen = decoder["frozen"]
    assert list(frozen) == ["share_30"]
    assert frozen["share_30"]["equal"] == frozen["share_30"]["answers"] > 0
    assert frozen["share_30"]["frozen_perplexity"] == frozen["share_30"]["trained_perplexity"]
    assert "speed" not in decoder
    runs = place / "runs" / "sst2" / "runs"
    assert len((runs / "bwta_level-0-log.csv").read_text().splitlines()) == 4
    assert not list(runs.glob("*.checkpoint"))
    assert "made bwta_level, seed 2/2: test" in capsys.readouterr().out


def test_finished_runs_are_not_trained_again(place, monkeypatch):
    assert call(place, "--seeds", "1") == 0
    before = json.loads((place / "results" / "text_sst2.json").read_text())["forms"]
    monkeypatch.setattr(experiment, "train", None)
    assert call(place, "--seeds", "1") == 0
    after = json.loads((place / "results" / "text_sst2.json").read_text())["forms"]
    assert before == after
    # A further seed does start.
    with pytest.raises(TypeError):
        call(place, "--seeds", "2")


def test_configurations_of_the_project():
    configs = {name: load_text_config(CONFIGS / f"{name}.yaml") for name in EXPERIMENTS}
    for name in ("sst2", "cola"):
        config = configs[name]
        assert isinstance(config, TextConfig)
        students = [recipe for recipe in config.forms.values() if recipe.teacher]
        # The comparison is one of schedules: all else is equal.
        assert len({(r.epochs, r.learning_rate, r.batch_size, r.labels) for r in students}) == 1
    assert isinstance(configs["decoder"], DecoderConfig)
    order = configs["decoder_order"]
    students = [recipe for recipe in order.forms.values() if recipe.teacher]
    assert len({(r.epochs, r.steps, r.learning_rate, r.share) for r in students}) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"levels": [2, 1]}, "levels go with precision bwta only"),
        ({"teacher": "fp32"}, "teacher and distill need each other"),
        ({"teacher": "later", "distill": {}}, "teacher must name a form trained before"),
        ({"labels": 0}, "labels must be above 0"),
        ({"teacher": "fp32", "distill": {"other": 1}}, "other"),
    ],
)
def test_configurations_that_cannot_be(place, change, message):
    file = place / "configs" / "sst2.yaml"
    content = yaml.safe_load(file.read_text())
    content["forms"]["fp32"] |= change
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    with pytest.raises(ConfigError, match=message):
        load_text_config(file)
