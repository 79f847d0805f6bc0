"""Rules of functions in a trace: what has no form runs as its own code, a fault of a rule shows."""

import pytest
import torch
from chains import FEATURES, HIDDEN, N
from torch import nn

from bitgnn.convert import freeze
from bitgnn.convert.network.functions import FUNCTIONS
from bitgnn.nn import GCNConv


def test_arguments_without_a_form_run_as_their_own_code():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(FEATURES, HIDDEN, precision="FBB+BBF")

        def forward(self, x, edge_index):
            x = self.conv(x, edge_index)
            x = torch.cat(x.split(20, dim=1)[:2], dim=1)
            return torch.cat(x.chunk(2)) + torch.add(x, other=x, alpha=2)

    model, graph = Own().eval(), torch.randint(0, N, (2, 100))
    x = torch.randn(N, FEATURES)
    frozen = freeze(model)
    for name in ("cat", "cat_1", "add"):
        assert "it runs as its own code" in frozen.report.floats[name]
    torch.testing.assert_close(frozen(x, graph), model(x, graph).detach(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("error", [AttributeError, TypeError])
def test_faults_of_rules_are_not_hidden(error, monkeypatch):
    def broken(name, x):
        raise error("a fault")

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(FEATURES, HIDDEN, precision="FBB+BBF")

        def forward(self, x, edge_index):
            return self.conv(x, edge_index).relu()

    monkeypatch.setitem(FUNCTIONS, "relu", broken)
    with pytest.raises(error, match="a fault"):
        freeze(Own().eval())
