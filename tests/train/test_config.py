"""Configurations: those shipped load, and every mistake gives one line that names it."""

from pathlib import Path

import pytest

from bitgnn.data import dataset_names
from bitgnn.data.pyg_datasets import normalized_name
from bitgnn.train import ConfigError, demo_config, find_config, load_config

CONFIGS = Path(__file__).parents[2] / "configs"

GOOD = """
name: x
dataset: {name: digits}
seeds: 2
forms:
  full: {}
  wide: {precision: bin, widen: 2}
"""


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_configurations_load(file):
    config = load_config(file)
    assert config.name == file.stem
    assert [config.precision(form) for form in config.forms] == ["full", "bin"]
    assert normalized_name(config.dataset.name) in map(normalized_name, dataset_names())


def test_every_row_of_the_papers_tables_has_a_configuration():
    rows = {f"{model}_{graph}" for model in ("indgcn", "sage", "saint")
            for graph in ("flickr", "reddit")}  # fmt: skip
    assert rows | {"gcn"} <= {file.stem for file in CONFIGS.glob("*.yaml")}


def test_an_experiment_on_another_graph():
    config = load_config(find_config("gcn"))
    found = config.on("PubMed")
    assert (found.name, found.dataset.name, found.dataset.split) == ("gcn_pubmed", "PubMed", None)
    assert found.forms == config.forms
    with pytest.raises(ConfigError, match="data: must name a graph, got ''"):
        config.on("")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("widen: 2", "width: 2",
         "unknown key 'forms.wide.width' .*, expected 'widen' perhaps, or one of precision, wi"),
        ("seeds: 2", "seed: 2",
         r"unknown key 'seed' \(found seed: 2\), expected 'seeds' perhaps, or "),
        ("seeds: 2", "zzz: 2", r"unknown key 'zzz' \(found zzz: 2\), expected one of name, da"),
        ("name: x\ndataset: {name: digits}\n", "", r"key 'name' is missing \(and 1 more\)$"),
        ("seeds: 2", "seeds: many", "key 'seeds': found 'many', expected: a valid integer"),
        ("seeds: 2", "seeds: 0", "key 'seeds': found 0, expected: greater than 0"),
        ("{name: digits}", "{}", "key 'dataset.name' is missing"),
        ("{name: digits}", "{name: a, root: b}", "unknown key 'dataset.root'.*name, split, seed"),
        ("{name: digits}", "{name: a, split: x}",
         "'dataset.split': found 'x', .* 'random' or 'seed'$"),
        ("seeds: 2", "epochs: 0", "key 'epochs': found 0, expected: greater than 0"),
        ("seeds: 2", "loader: {kind: cluster}", "key 'loader.kind'.*one of neighbor, saint"),
        ("seeds: 2", "loader: {kind: neighbor, walks: 2}", "unknown key 'loader.walks'.*batch_si"),
        ("seeds: 2", "loader: {kind: saint_rw, roots: 5}", "key 'loader.walk_length' is missing"),
        ("seeds: 2", "loader: {kind: neighbor, neighbors: [3, 0]}", "key 'loader.neighbors.1'"),
        ("  full:", "  Full Form:", "forms.Full Form: a form's name is lower-case letters"),
        ("  full:", "  fp32:", "forms.fp32: .* other than 'fp32', which is the float model's"),
        ("precision: bin", "precision: 3", "forms.wide.precision': found 3, expected: a va"),
        ("precision: bin", "precision: half", "forms.wide: precision must be 'fp32', 'full'"),
        ("precision: bin", "precision: fp32", "forms.wide: precision must be a binary one, got"),
        ("  full:", "  half:", "forms.half: precision must be 'fp32', 'full', 'bin' or letters"),
        ("widen: 2", "widen: 0.5", "forms.wide.widen': found 0.5, expected: greater than or equal"),
        ("dataset: {name: digits}", "dataset: [", "is not valid YAML"),
    ],
)  # fmt: skip
def test_mistakes_are_named(tmp_path, old, new, message):
    assert old in GOOD
    file = tmp_path / "my.yaml"
    file.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


def test_what_a_file_says(tmp_path):
    (tmp_path / "x.yaml").write_text(GOOD)
    config = load_config(tmp_path / "x.yaml")
    assert config.seeds == 2
    assert [config.precision(form) for form in config.forms] == ["full", "bin"]
    assert [form.widen for form in config.forms.values()] == [None, 2]
    assert demo_config(3).seeds == 3


def test_files_that_are_no_configuration(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot be read \(No such file"):
        load_config(tmp_path / "none.yaml")
    (tmp_path / "list.yaml").write_text("- 1\n- 2\n")
    with pytest.raises(ConfigError, match="expected keys and values, found list"):
        load_config(tmp_path / "list.yaml")
