"""Functions without a form among the steps run as their own code, and faults of rules show."""

import pytest
import torch
from chains import FEATURES, HIDDEN, N
from torch import nn

from bitgnn.convert import freeze
from bitgnn.convert.network.lower import _Lowering
from bitgnn.nn import GCNConv


class Own(nn.Module):
    def __init__(self, rest):
        super().__init__()
        self.conv, self.rest = GCNConv(FEATURES, HIDDEN, precision="FBB+BBF"), [rest]

    def forward(self, x, edge_index):
        return self.rest[0](self.conv(x, edge_index))


def _without_a_form(x):
    x = torch.cat(x.split(20, dim=1)[:2], dim=1)
    return torch.cat(x.chunk(2)) + torch.add(x, other=x, alpha=2)


def test_arguments_without_a_form_run_as_their_own_code():
    model, graph = Own(_without_a_form).eval(), torch.randint(0, N, (2, 100))
    x = torch.randn(N, FEATURES)
    frozen = freeze(model)
    for name in ("cat", "cat_1", "add"):
        assert "it runs as its own code" in frozen.report.floats[name]
    torch.testing.assert_close(frozen(x, graph), model(x, graph).detach(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("error", [AttributeError, TypeError])
def test_faults_of_rules_are_not_hidden(error, monkeypatch):
    def broken(name, x):
        raise error("a fault")

    monkeypatch.setitem(_Lowering.rules, "relu", broken)
    with pytest.raises(error, match="a fault"):
        freeze(Own(lambda x: x.relu()).eval())
