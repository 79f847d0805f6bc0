"""Files and plans of models on 8-bit rows: values, types and shapes of buffers are checked."""

import pytest
import torch
from dense_features import network

import bitgnn
from bitgnn.inference import load, save


@pytest.mark.parametrize(
    ("step", "name", "change", "message"),
    [
        (0, "inverse_step", lambda t: t[1].fill_(-1.0), "inverse_step must be 0 or in"),
        (0, "inverse_step", lambda t: t[1].fill_(torch.nan), "inverse_step must be 0 or in"),
        (0, "inverse_step", lambda t: t[1].fill_(torch.inf), "inverse_step must be 0 or in"),
        (0, "centre", lambda t: t[1].fill_(torch.inf), "centre must be finite"),
        (1, "weight", lambda t: t[0, 0].fill_(-128), r"weight must lie in \[-127, 127\]"),
        (1, "weight", lambda t: t[0, -1].fill_(1), "padding of weight must be 0"),
    ],
)
def test_values_of_a_file_are_checked(step, name, change, message, tmp_path):
    frozen = bitgnn.freeze(network("gcn", "bin")[0], check=False)
    change(frozen.get_buffer(frozen.program.calls[step].tensors[name]))
    with pytest.raises(ValueError, match=message):
        load(save(frozen, tmp_path))


@pytest.mark.parametrize(
    ("step", "name", "tensor", "message"),
    [
        (0, "centre", torch.zeros(36), "centre must have size 37"),
        (0, "centre", torch.zeros(37).double(), r"centre must be torch\.float32"),
        (1, "weight", torch.zeros(35, 37, dtype=torch.int8), "weight must have size 48"),
        (1, "weight", torch.zeros(35, 48), r"weight must be torch\.int8"),
        (1, "threshold", torch.zeros(35), r"threshold must be torch\.int32"),
        (1, "threshold", torch.zeros(36, dtype=torch.int32), "threshold must have size 35"),
    ],
)
def test_types_and_shapes_of_a_file_are_checked(step, name, tensor, message, tmp_path):
    frozen = bitgnn.freeze(network("gcn", "bin")[0], check=False)
    frozen._buffers[frozen.program.calls[step].tensors[name]] = tensor
    with pytest.raises(ValueError, match=message):
        load(save(frozen, tmp_path))


@pytest.mark.parametrize("kind", ["gcn", "sage"])
def test_plans_name_the_letters_of_8_bit_rows(kind):
    model, x, edges = network(kind, "bin")
    frozen = bitgnn.freeze(model, check=False)
    own = dict(frozen.report.letters)
    assert own == {"convs.0": "FIB+BBF", "convs.1": "FBF+FBF"}
    # Letters of binary weights mean those of 8 bits where such were trained.
    for plan in (bitgnn.Plan(own), own, {"convs.0": "FIB+BBF"}, {"convs.0": "FBB+BBF"}):
        planned = bitgnn.freeze(model, plan, check=False)
        assert planned.report.letters == own
        assert torch.equal(planned(x, edges), frozen(x, edges))
    floats = bitgnn.freeze(model, {"convs.0": "FFF+FBF"}, check=False)
    assert floats.program.calls[0].kind == "linear"
    with pytest.raises(ValueError, match=r"'FIF\+FBF' are for a layer that was trained"):
        bitgnn.freeze(model, {"convs.1": "FIF+FBF"}, check=False)
