"""Experiments: several seeds, stopping and going on, samples, and results."""

import csv
import json

import pytest
import torch
from torch_geometric import typing as pyg

from bitgnn.data import DataError
from bitgnn.distillation import fitting
from bitgnn.inference import load
from bitgnn.train import (
    GraphSource,
    LoaderError,
    MismatchError,
    experiment,
    measured,
    train_all,
    write_results,
)
from bitgnn.train import config as train_config
from bitgnn.train.config import Form, Neighbors, RandomWalks

CPU = torch.device("cpu")
NEIGHBORS = Neighbors(kind="neighbor", neighbors=(4, 3), batch_size=11)
WALKS = RandomWalks(kind="saint_rw", roots=20, walk_length=2, steps=3)
needs_sparse = pytest.mark.skipif(not pyg.WITH_TORCH_SPARSE, reason="needs torch-sparse")


def scores(forms):
    return [(run.form, run.seed, run.val_score, run.test_score, run.epochs) for run in forms.runs]


def test_all_forms_and_seeds_are_trained_alike(config, data, graphs, tmp_path):
    said = []
    forms = train_all(config, graphs, tmp_path / "a", CPU, said.append)
    assert scores(forms) == scores(train_all(config, graphs, tmp_path / "b", CPU))
    assert [(run.form, run.seed) for run in forms.runs] == [
        (form, seed) for seed in (0, 1) for form in ("fp32", "full", "bin")
    ]
    assert said[0].startswith("digits fp32, seed 1 of 2: ")
    run, frozen = forms.best("bin")
    assert run.val_score == max(other.val_score for other in forms.of("bin"))
    right = frozen(data.x, data.edge_index).argmax(1) == data.y
    assert run.test_score == pytest.approx(right[data.test_mask].float().mean().item())
    assert (run.epochs, run.differing) == (config.epochs, 0)


def test_a_stopped_experiment_goes_on(config, graphs, tmp_path, monkeypatch):
    whole = train_all(config, graphs, tmp_path / "whole", CPU)
    real, steps = fitting.step_epoch, []

    def counted(*arguments):
        if len(steps) == 28:  # in the student of the second seed's first form
            steps.append("stopped")
            raise KeyboardInterrupt
        steps.append(1)
        real(*arguments)

    monkeypatch.setattr(fitting, "step_epoch", counted)
    with pytest.raises(KeyboardInterrupt):
        train_all(config, graphs, tmp_path / "parts", CPU)
    for again in (range(36 - 28, 36 - 24 + 1), [0]):  # the epochs since the last checkpoint
        before = len(steps)
        assert scores(train_all(config, graphs, tmp_path / "parts", CPU)) == scores(whole)
        assert len(steps) - before in again


def test_fewer_splits_than_seeds_is_noticed_first(config, data, monkeypatch):
    asked = []

    def load(name, root, *, split, **_):
        asked.append(split)
        if split > 3:
            raise ValueError(f"split must be 'random' or from 0 to 3, got {split}")
        return data

    monkeypatch.setattr(experiment, "load", load)
    dataset = config.dataset.model_copy(update={"split": "seed"})
    config = config.model_copy(update={"dataset": dataset, "seeds": 5})
    with pytest.raises(DataError, match=r"dataset: split must be .* got 4"):
        GraphSource(config).check()
    assert asked == [4]


def test_results_on_disk(config, data, graphs, tmp_path):
    wide = {**config.forms, "wide": Form(precision="bin", widen=2)}
    config = config.model_copy(update={"forms": wide})
    forms = train_all(config, graphs, tmp_path, CPU)
    results = measured(config, data, forms, repeats=7)
    write_results(tmp_path, config, data, results)
    record = json.loads((tmp_path / "results.json").read_text())
    assert record["environment"]["versions"]["torch"] == torch.__version__
    assert (record["graph"]["nodes"], record["metric"]) == (90, "accuracy")
    assert len(record["forms"]["bin"]["runs"]) == 2
    assert record["forms"]["bin"]["frozen_equals_trained"] is True
    shares = [100 * run.test_score for run in forms.of("bin")]
    assert record["forms"]["bin"]["score_mean_percent"] == pytest.approx(sum(shares) / 2)
    spread = abs(shares[0] - shares[1]) / 2**0.5
    assert record["forms"]["bin"]["score_std_points"] == pytest.approx(spread)
    rows = list(csv.DictReader((tmp_path / "results.csv").open()))
    assert [row["form"] for row in rows] == ["PyG fp32", "bitgnn full", "bitgnn bin", "bitgnn wide"]
    assert int(rows[2]["model_bytes"]) < int(rows[3]["model_bytes"])
    assert int(rows[2]["peak_bytes"]) < int(rows[0]["peak_bytes"])
    assert (tmp_path / "results.png").read_bytes().startswith(b"\x89PNG")
    packed = load(tmp_path / "model-bin")
    assert torch.equal(packed(data.x, data.edge_index), results[2].frozen(data.x, data.edge_index))


@pytest.mark.cuda
def test_what_a_gpu_trains_is_measured_on_the_cpu(config, data, graphs, tmp_path):
    forms = train_all(config, graphs, tmp_path, torch.device("cuda"))
    assert {run.differing for run in forms.runs} == {0}
    for result in measured(config, data, forms, repeats=7):
        assert result.runs[0].machine.startswith(torch.cuda.get_device_name())
        assert result.timings


def test_a_frozen_model_that_differs_is_an_error(config, graphs, tmp_path, monkeypatch):
    real = experiment.distilled

    def wrong(*arguments, **named):
        result = real(*arguments, **named)
        frozen = result.frozen
        frozen.get_buffer(frozen.program.steps[-2].tensors["weight"]).bitwise_not_()
        return result

    monkeypatch.setattr(experiment, "distilled", wrong)
    with pytest.raises(MismatchError, match=r"tiny, form full, seed 0: the frozen .* of 90 nodes"):
        train_all(config, graphs, tmp_path, CPU)


@pytest.mark.parametrize(
    ("model", "loader"),
    [
        ("indgcn", NEIGHBORS),
        ("sage", NEIGHBORS),
        ("GraphSAGE", NEIGHBORS),
        pytest.param("GraphSAINT", WALKS, marks=needs_sparse),
    ],
)
def test_forms_learn_from_samples(config, data, graphs, tmp_path, model, loader):
    config = config.model_copy(update={"model": model, "loader": loader, "seeds": 1})
    forms = train_all(config, graphs, tmp_path, CPU)
    assert [run.form for run in forms.runs] == ["fp32", "full", "bin"]
    results = measured(config, data, forms, repeats=7)
    assert [result.frozen is None for result in results] == [True, False, False]
    whole = experiment.sparse(data)
    frozen = results[2].frozen
    assert torch.equal(frozen(data.x, data.edge_index), frozen(data.x, whole.edge_index))


def test_a_missing_library_is_named(data, monkeypatch):
    monkeypatch.setattr(train_config.pyg, "WITH_TORCH_SPARSE", False)
    message = "loader saint_rw: .* needs torch-sparse: pip install .*sparse"
    with pytest.raises(LoaderError, match=message):
        WALKS.batches(data)


@needs_sparse
def test_walks_are_given_as_subgraphs(data):
    found = list(WALKS.batches(data))
    assert 0 < len(found) <= WALKS.steps
    for part in found:
        assert torch.equal(part.x, data.x[part.n_id])
        assert torch.equal(part.train_mask, data.train_mask[part.n_id])
