"""Synthetic graphs: exact sizes, degree laws, homophily, determinism, names that say so."""

import numpy as np
import pytest
import torch

from bitgnn.data import load, synthetic
from bitgnn.data.synthetic_graphs import (
    NAMED_SIZES,
    GraphSize,
    class_features,
    expected_degrees,
)


def homophily(data):
    return (data.y[data.edge_index[0]] == data.y[data.edge_index[1]]).float().mean().item()


@pytest.mark.parametrize("degree", ["power_law", "uniform"])
def test_sizes_and_form(degree):
    data = synthetic(1000, 8000, 33, 5, degree=degree, homophily=0.7)
    assert (data.x.shape, data.x.dtype) == ((1000, 33), torch.float32)
    assert (data.edge_index.shape, data.edge_index.dtype) == ((2, 8000), torch.int64)
    assert data.name.startswith("synthetic")
    assert data.synthetic
    assert set(data.y.tolist()) == set(range(5))
    edges = data.edge_index
    assert torch.equal(torch.unique(edges, dim=1), torch.unique(edges.flip(0), dim=1))
    assert not (edges[0] == edges[1]).any()
    assert ((edges[1] * 1000 + edges[0]).diff() > 0).all()  # in order, none twice
    masks = torch.stack([data.train_mask, data.val_mask, data.test_mask])
    assert (masks.sum(0) == 1).all()
    assert masks.any(1).all()
    same, other = (
        synthetic(1000, 8000, 33, 5, degree=degree, homophily=0.7, seed=s) for s in (0, 1)
    )
    for key in ("x", "edge_index", "y", "train_mask", "val_mask"):
        assert torch.equal(data[key], same[key])
        assert not torch.equal(data[key], other[key])


@pytest.mark.parametrize("wanted", [0.0, 0.3, 0.9, 1.0])
def test_homophily(wanted):
    data = synthetic(5000, 30_000, 2, 4, homophily=wanted)
    assert homophily(data) == pytest.approx(wanted, abs=0.02)


def test_the_degree_laws_show():
    options = ({"degree": "uniform"}, {"exponent": 2.2}, {"exponent": 2.2, "max_degree": 100})
    graphs = [synthetic(5000, 100_000, 1, 2, **one) for one in options]
    flat, heavy, clipped = (int(torch.bincount(d.edge_index[1]).max()) for d in graphs)
    # Poisson with mean 20; a heavy tail; the bound is of the expectation.
    assert flat < 50
    assert heavy > 400
    assert 80 < clipped < 160


def test_expected_degrees_keep_the_mean_and_the_bound():
    generator = np.random.default_rng(0)
    size = GraphSize(10_000, 120_000, 1, 1, 2.1, 300, 0.5, 0.5, 0.25)
    degrees = expected_degrees(size, "power_law", generator)
    assert degrees.mean() == pytest.approx(12.0, rel=1e-3)
    assert degrees.max() <= 300
    # Density ~ degree ** -2.1: the part above 4 d is 4 ** -1.1 of that above d.
    ratio = (degrees > 40).sum() / (degrees > 10).sum()
    assert ratio == pytest.approx(4**-1.1, rel=0.15)


@pytest.mark.parametrize("name", list(NAMED_SIZES))
def test_named_sizes_scale(name):
    size = NAMED_SIZES[name]
    data = synthetic(name, scale=0.01)
    assert data.name.startswith(f"synthetic {name} x 0.01 (")
    assert data.num_nodes == round(size.num_nodes * 0.01)
    assert 0 <= size.num_edges * 0.01 - data.num_edges < 2
    assert data.x.size(1) == size.num_features
    assert int(data.y.max()) == size.num_classes - 1
    assert homophily(data) == pytest.approx(size.scaled(0.01).homophily, abs=0.15)
    assert data.train_mask.float().mean().item() == pytest.approx(size.train, abs=0.05)


def test_a_named_size_by_load():
    data, size = load("synthetic-flickr", seed=2), NAMED_SIZES["flickr"]
    assert (data.num_nodes, data.num_edges) == (size.num_nodes, size.num_edges)
    assert data.synthetic
    assert data.name.startswith("synthetic flickr (89250 nodes, 899756 edges")


@pytest.mark.parametrize("num_nodes", [1, 2, 33])
def test_tiny_graphs(num_nodes):
    for edges in (0, num_nodes * (num_nodes - 1)):  # none, and the complete graph
        data = synthetic(num_nodes, edges, 1, 1, degree="uniform")
        assert data.x.shape == (num_nodes, 1)
        assert torch.unique(data.edge_index, dim=1).shape == (2, edges)


def test_features_tell_the_classes_apart():
    y = torch.tensor([0, 1, -1]).repeat(2000)
    x = class_features(y, 16, np.random.default_rng(0), signal=3.0)
    means = torch.stack([x[y == label].mean(0) for label in (0, 1, -1)])
    assert means[2].norm() < 0.2
    assert (means[0] - means[1]).norm() > 2
    assert x[y == -1].std().item() == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((10,), {}, r"\['num_edges', 'num_features', 'num_classes'\] must be given"),
        ((10, 4, 2, 2), {"scale": 0.5}, "scale needs a named size, got 0.5"),
        (("cora",), {}, "size must be one of .*'reddit'.* got 'cora'"),
        (("reddit",), {"scale": 0.0}, "scale must be above 0, got 0.0"),
        ((0, 0, 2, 2), {}, "num_nodes must be at least 1, got 0"),
        ((10, 4, 0, 2), {}, "num_features must be at least 1, got 0"),
        ((10, 5, 2, 2), {}, "num_edges must be even.* got 5"),
        ((10, -2, 2, 2), {}, "num_edges must be even.* got -2"),
        ((10, 92, 2, 2), {"max_degree": 99}, "10 nodes cannot have 92 edges"),
        ((10, 80, 2, 2), {"homophily": 1.0, "degree": "uniform"}, "could be placed among 10"),
        ((10, 4, 2, 2), {"homophily": 1.5}, r"homophily must be in \[0, 1\], got 1.5"),
        ((10, 4, 2, 2), {"exponent": 1.0}, "exponent must be above 1, got 1.0"),
        ((10, 4, 2, 2), {"signal": float("nan")}, "signal must be finite, got nan"),
        ((10, 4, 2, 2), {"degree": "star"}, "degree must be 'power_law' or 'uniform'"),
        ((10, 80, 2, 2), {"max_degree": 3}, "max_degree must be at least the mean degree 8.0"),
    ],
)
def test_refusals(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        synthetic(*arguments, **options)
