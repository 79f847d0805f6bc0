"""Configurations: those shipped load, and every mistake gives one line that names it."""

from pathlib import Path

import pytest

from bitgnn.data import dataset_names
from bitgnn.data.catalog import normalized_name
from bitgnn.train import ConfigError, demo_config, find_config, load_config

CONFIGS = Path(__file__).parents[2] / "configs"

GOOD = """
name: x
dataset: {name: digits}
seeds: 2
forms:
  full: {epochs: 3, learning_rate: 0.1}
  bin: {epochs: 3, learning_rate: 0.1, start_from: full}
"""


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_configurations_load(file):
    config = load_config(file)
    assert config.name == file.stem
    compared = ["fp32", "bin", "ternary"] if "ternary" in file.stem else ["fp32", "full", "bin"]
    assert list(config.forms)[:3] == compared
    assert not config.is_binary("fp32")
    assert all(config.is_binary(form) for form in compared[1:])
    assert normalized_name(config.dataset.name) in map(normalized_name, dataset_names())


def test_every_row_of_the_papers_tables_has_a_configuration():
    rows = {f"{model}_{graph}" for model in ("indgcn", "sage", "saint")
            for graph in ("flickr", "reddit")}  # fmt: skip
    assert rows | {"gcn"} <= {file.stem for file in CONFIGS.glob("*.yaml")}


def test_the_recipe_of_one_graph_is_that_of_another():
    recipe = load_config(find_config("gcn"))
    found = recipe.on("PubMed")
    assert (found.name, found.dataset.name, found.dataset.split) == ("gcn_pubmed", "PubMed", None)
    assert found.forms == recipe.forms
    with pytest.raises(ConfigError, match="data: key 'name'"):
        recipe.on("")


def test_a_configuration_says_what_is_special(tmp_path):
    (tmp_path / "x.yaml").write_text(GOOD)
    own = tmp_path / "own.yaml"
    own.write_text(
        "base: x\nname: own\nforms:\n  full: {epochs: 5}\n  bin: null\n"
        "  small: {like: full, precision: bin, learning_rate: 0.2}\n"
    )
    config = load_config(own)
    assert (config.name, config.seeds, list(config.forms)) == ("own", 2, ["full", "small"])
    assert [recipe.epochs for recipe in config.forms.values()] == [5, 5]
    assert [recipe.learning_rate for recipe in config.forms.values()] == [0.1, 0.2]
    (tmp_path / "gcn.yaml").write_text("base: gcn\nname: gcn\nloader: {kind: full}\n")
    assert load_config(tmp_path / "gcn.yaml") == load_config(find_config("gcn"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: nowhere", "nowhere: neither a file nor a built-in configuration"),
        ("base: other", "odd: neither a file nor a built-in configuration"),
        ("forms: {bin: {like: full}}", "forms.bin: like must name another form"),
        ("forms: {bin: {like: full}, full: {like: bin}}", "does not rest on this one, got 'bin'"),
    ],
)
def test_what_rests_on_nothing_is_named(tmp_path, text, message):
    (tmp_path / "odd.yaml").write_text(text)
    (tmp_path / "other.yaml").write_text("base: odd")
    with pytest.raises(ConfigError, match=message):
        load_config(tmp_path / "odd.yaml")


def test_demo_configuration():
    assert demo_config(3).seeds == 3


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "epochs: 3, learning_rate: 0.1}",
            "epoch: 3, learning_rate: 0.1}",
            "unknown key 'forms.full.epoch' .*, expected 'epochs' perhaps, or one of epochs, ",
        ),
        (
            "seeds: 2",
            "seed: 2",
            r"unknown key 'seed' \(found seed: 2\), expected 'seeds' perhaps, or ",
        ),
        ("seeds: 2", "zzz: 2", r"unknown key 'zzz' \(found zzz: 2\), expected one of name, da"),
        ("name: x\ndataset: {name: digits}\n", "", "keys 'name', 'dataset' are missing$"),
        ("seeds: 2", "seeds: many", "key 'seeds': found 'many', expected: a valid integer"),
        ("seeds: 2", "seeds: 0", "key 'seeds': found 0, expected: greater than 0"),
        ("{name: digits}", "{}", "key 'dataset.name' is missing"),
        ("{name: digits}", "{name: a, root: b}", "unknown key 'dataset.root'.*name, split, seed"),
        (
            "{name: digits}",
            "{name: a, split: x}",
            "'dataset.split': found 'x', .* 'random' or 'seed'$",
        ),
        ("seeds: 2", "model: gin", "key 'model': found 'gin', expected: 'gcn', 'graphsage' or"),
        ("seeds: 2", "model: graphsage\ninductive: true", "inductive: belongs to model gcn"),
        ("seeds: 2", "model: graphsaint\nnum_layers: 3", "num_layers: graphsaint has 2, got 3"),
        ("seeds: 2", "loader: {kind: cluster}", "key 'loader.kind'.*one of full, neighbor, saint"),
        ("seeds: 2", "loader: {kind: neighbor, walks: 2}", "unknown key 'loader.walks'.*batch_si"),
        ("seeds: 2", "loader: {kind: saint_rw, roots: 5}", "keys 'loader.walk_length', 'l"),
        ("seeds: 2", "loader: {kind: neighbor, neighbors: [3]}", "one number for each of 2 layer"),
        ("seeds: 2", "loader: {kind: neighbor, neighbors: [3, 0]}", "key 'loader.neighbors.1'"),
        ("name: x\n", "", "key 'name' is missing"),
        ("  full:", "  half:", "forms.half: precision is missing; only 'fp32', 'full', 'bin'"),
        ("  full:", "  Full Form:", "forms.Full Form: a form's name is lower-case letters"),
        ("  full: {", "  full: {precision: FBB+FBF, ", "output of BMM .B. must be the activation"),
        (
            "  full: {",
            "  full: {precision: FBB+BBB, ",
            "forms.full.* last layer must return floats",
        ),
        ("  full: {", "  full: {precision: 3, ", "forms.full.precision': found 3, expected: a va"),
        ("  full: {", "  full: {precision: [full], ", "forms.full: precision must have one entry"),
        ("  full: {", "  full: {precision: half, ", "forms.full: precision must be 'fp32', 'full'"),
        ("  full: {", "  full: {surrogate: tanh, ", "forms.full.surrogate': found 'tanh'"),
        ("  full: {", "  full: {patience: 0, ", "forms.full.patience': found 0, expected: greater"),
        ("start_from: full", "teachers: [full]", "forms.bin: teachers need distill above 0"),
        ("start_from: full", "distill: 1, teachers: [fp32]", "teachers must name a form trained"),
        ("start_from: full", "start_from: fp32", "start_from must name a form trained before"),
        ("start_from: full", "distill: 1.0", "forms.bin: distill needs start_from"),
        ("start_from: full", "start_from: full, input_norm: false", "input_norm must be that of"),
        ("dataset: {name: digits}", "dataset: [", "is not valid YAML"),
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
