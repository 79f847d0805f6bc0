"""The benchmark of BWTA layers: wrong results get no time."""

import pytest
import torch

from bench.bwta import cases as bwta_cases
from bench.bwta.cases import linear_cases
from bench.cases import WrongResultError


def test_a_wrong_layer_gets_no_time(monkeypatch):
    monkeypatch.setattr(bwta_cases.ternary, "linear", lambda x, w, s, dtype: torch.zeros(9, 32))
    (case,) = linear_cases("cpu", quick=True)
    (ours,) = [entry for entry in case.contenders() if entry.name == "packing and product"]
    with pytest.raises(WrongResultError):
        ours.make()
