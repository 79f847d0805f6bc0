"""A forward on the CPU: one operator call for each fused stage, results that stay as they are."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bitgnn import freeze
from bitgnn.models import GCN


class Calls(TorchDispatchMode):
    """Names of the operators called inside."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def frozen_gcn(nodes: int, hidden: int, classes: int, layers: int = 2) -> tuple[Any, Any, Any]:
    generator = torch.Generator().manual_seed(nodes)
    torch.manual_seed(0)
    model = freeze(GCN(40, hidden, classes, num_layers=layers, precision="bin").eval())
    graph = model.prepare_graph(torch.randint(nodes, (2, 4 * nodes), generator=generator), nodes)
    return model, graph, torch.randn(nodes, 40, generator=generator)


@pytest.mark.parametrize("layers", [2, 3])
def test_every_layer_is_one_call(layers):
    model, graph, x = frozen_gcn(50, 64, 5, layers)
    for features in (x, model.pack_features(x, layout="dense")):
        with Calls() as calls:
            model(features, graph)
        expected = ["bmm_bspmm"] * (layers - 1) + ["bmm_bspmm_narrow"]
        assert calls.names == expected


def test_results_in_use_are_never_written_again():
    # Above the size from which results come from the cache of buffers.
    nodes, classes = 40_000, 33
    model, graph, x = frozen_gcn(nodes, 32, classes)
    held = [model(x * sign, graph) for sign in (1, -1)]
    copies = [scores.clone() for scores in held]
    assert not torch.equal(copies[0], copies[1])
    for sign in (0.5, -2.0):
        model(x * sign + 0.1, graph)
    assert all(torch.equal(scores, copy) for scores, copy in zip(held, copies, strict=True))
    assert len({scores.data_ptr() for scores in held}) == len(held)
