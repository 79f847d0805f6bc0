"""Devices: the same results wherever a model lies."""

import pytest
import torch

from bitgnn.convert import freeze


@pytest.mark.parametrize("precision", ["full", "bin"])
def test_frozen_model_moves_between_devices(make_model, graph, features, precision, device):
    frozen = freeze(make_model(precision))
    expected = frozen(features, graph)
    frozen = frozen.to(device)
    x, edge_index = features.to(device), graph.to(device)
    adjacency = frozen.prepare_graph(edge_index, len(x))
    assert adjacency.device.type == device.type
    for form in (x, frozen.pack_features(x), frozen.pack_features(x, layout="dense")):
        found = frozen(form, adjacency)
        assert found.device.type == device.type
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-5)
    assert frozen.to("cpu")(features, graph).equal(expected)


@pytest.mark.parametrize("precision", ["full", "bin"])
def test_trained_model_on_a_device(make_model, graph, features, precision, device):
    model = make_model(precision)
    with torch.no_grad():
        expected = model(features, graph)
    model = model.to(device)
    found = model(features.to(device), graph.to(device))
    torch.testing.assert_close(found.detach().cpu(), expected, rtol=1e-4, atol=1e-4)
    found.sum().backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
