"""Configurations: those shipped load, and every mistake gives one line that names it."""

from pathlib import Path

import pytest

from bitgnn.train import ConfigError, demo_config, load_config

CONFIGS = Path(__file__).parents[2] / "configs"

GOOD = """
name: x
dataset: {kind: digits}
seeds: 2
forms:
  full: {epochs: 3, learning_rate: 0.1}
  bin: {epochs: 3, learning_rate: 0.1, start_from: full}
"""


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed"])
def test_shipped_configurations_load(name):
    config = load_config(CONFIGS / f"gcn_{name}.yaml")
    assert config.dataset.name.lower() == name
    assert [form for form, _ in config.ordered_forms()] == ["fp32", "full", "bin"]
    assert config.seeds == 10


def test_demo_configuration():
    assert demo_config(3).seeds == 3


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "epochs: 3, learning_rate: 0.1}",
            "epoch: 3, learning_rate: 0.1}",
            "unknown key 'forms.full.epoch'|key 'forms.full.epochs' is missing",
        ),
        ("seeds: 2", "seed: 2", r"unknown key 'seed' \(found seed: 2\), expected one of name, da"),
        ("seeds: 2", "seeds: many", "key 'seeds': found 'many', expected: a valid integer"),
        ("seeds: 2", "seeds: 0", "key 'seeds': found 0, expected: greater than 0"),
        (
            "kind: digits",
            "kind: cifar",
            "key 'dataset.kind': found 'cifar', expected: 'planetoid' or 'digits'",
        ),
        ("kind: digits", "kind: planetoid", "name belongs to kind planetoid"),
        ("name: x\n", "", "key 'name' is missing"),
        ("  full:", "  half:", "found 'half', expected: 'fp32', 'full' or 'bin'"),
        ("start_from: full", "start_from: fp32", "start_from must name a form trained before"),
        ("start_from: full", "distill: 1.0", "forms.bin: distill needs start_from"),
        ("start_from: full", "start_from: full, input_norm: false", "input_norm must be that of"),
        ("dataset: {kind: digits}", "dataset: [", "is not valid YAML"),
    ],
)
def test_mistakes_are_named(tmp_path, old, new, message):
    assert old in GOOD
    file = tmp_path / "my.yaml"
    file.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


def test_files_that_are_no_configuration(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot be read \(No such file"):
        load_config(tmp_path / "none.yaml")
    (tmp_path / "list.yaml").write_text("- 1\n- 2\n")
    with pytest.raises(ConfigError, match="expected keys and values, found list"):
        load_config(tmp_path / "list.yaml")
    (tmp_path / "good.yaml").write_text(GOOD)
    assert load_config(tmp_path / "good.yaml").seeds == 2
