"""BinCNN: its structure, the four ways of taking images, and the paper's sign."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from bitgnn.models import BinCNN, bincnn
from bitgnn.models.bincnn import GreyThreshold, LocalBinaryPatterns, RGBThreshold
from bitgnn.nn import BinaryConv2d, BinaryLinear


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_structure_is_the_papers():
    network = bincnn()
    weights = [(32, 3, 5, 5), (32, 32, 5, 5), (100, 18432), (100, 100), (4, 100)]
    for one in (network, bincnn("fp32")):
        assert [tuple(m.weight.shape) for m in one.modules() if hasattr(m, "weight")] == weights
    kinds = {type(m) for m in network.modules()}
    assert not kinds & {nn.BatchNorm2d, nn.BatchNorm1d, nn.ReLU}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("inputs", ["none", "rgb", "grey", "lbp"])
def test_forms_run_and_train(inputs, strict):
    network = bincnn(inputs=inputs, width=0.2, image_size=8, strict_sign=strict)
    x = torch.randn(6, 3, 8, 8)
    functional.cross_entropy(network(x), torch.arange(6) % 4).backward()
    for name, parameter in network.named_parameters():
        if name.endswith("weight") or name == "features.0.threshold":
            assert parameter.grad.abs().sum() > 0, name
        else:
            assert not parameter.requires_grad
    first = network.features[1]
    assert first.in_channels == (1 if inputs == "grey" else 3)
    assert (first.input_step is None) == (inputs != "none")


def test_local_binary_patterns_by_hand():
    x = torch.zeros(1, 3, 3, 4)
    x[0, :, 1, 1] = 1.0  # one bright pixel
    x[0, :, 0, 0] = 2.0  # a brighter one above and left of it
    found = LocalBinaryPatterns()(x)
    # Top left, right, bottom left of each pixel, against the pixel.
    # The image continues as it ends, so the bright corner is above its neighbours too.
    above_left = [[-1, 1, -1, -1], [1, 1, -1, -1], [-1, -1, 1, -1]]
    right = [[-1, -1, -1, -1], [1, -1, -1, -1], [-1, -1, -1, -1]]
    below_left = [[-1, -1, 1, -1], [-1, -1, -1, -1], [-1, -1, -1, -1]]
    assert found.tolist() == [[above_left, right, below_left]]


def test_thresholds_shift_signs():
    x = torch.rand(2, 3, 4, 4)
    rgb, grey = RGBThreshold(), GreyThreshold()
    with torch.no_grad():
        rgb.threshold.copy_(torch.tensor([-0.2, -0.5, -0.9]).view(3, 1, 1))
    assert torch.equal(rgb(x)[:, 1], x[:, 1] - 0.5)
    expected = 0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2]
    torch.testing.assert_close(grey(x)[:, 0], expected)
    assert grey.threshold.shape == (1, 1, 1)


def test_strict_signs_are_minus_one_at_zero():
    loose, strict = (bincnn(width=0.2, image_size=8, strict_sign=s).eval() for s in (False, True))
    strict.load_state_dict(loose.state_dict(), strict=False)
    with torch.no_grad():
        x = torch.randint(-1, 2, (64, 3, 8, 8)).float()
        sums = loose.features[1](x)
        assert (sums == 0).any()
        assert torch.equal(strict.features[1](x) >= 0, sums > 0)
    assert strict.classifier[-1].bias is None
    x = torch.rand(4, 3, 8, 8) - 0.5
    assert not torch.equal(loose(x), strict(x))


def test_structures_of_any_size():
    network = BinCNN("lbp", 3, channels=5, dense=7, image=(3, 13, 9))
    assert network(torch.randn(2, 3, 13, 9)).shape == (2, 3)
    assert sum(isinstance(m, BinaryConv2d | BinaryLinear) for m in network.modules()) == 5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bincnn(inputs="hsv"), r"BinCNN: inputs must be one of .*, got 'hsv'"),
        (lambda: bincnn("fp16"), r"BinCNN: precision must be one of .*, got 'fp16'"),
        (lambda: BinCNN("grey", image=(1, 96, 96)), "three channels to make grey"),
        (lambda: BinCNN(image=(3, 3, 96)), "BinCNN: an image must have at least 4x4 pixels"),
        (lambda: bincnn()(torch.randn(1, 3, 32, 32)), r"BinCNN: x must be \[N, 3, 96, 96\]"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
