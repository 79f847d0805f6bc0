"""binarize() of convolutional and fully connected networks."""

import itertools
import warnings
from typing import Any

import pytest
import torch
from image_networks import trained
from torch import Tensor, nn

import bitgnn
from bitgnn import BWTAConfig, GraphConfig, ImageConfig, report_of
from bitgnn.nn import BinaryConv2d, BinaryLinear

ENDS: Any = {"first": "binary", "last": "binary"}


def _vgg():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 24, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(24 * 16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(),
        nn.Linear(32, 5),
    )  # fmt: skip


class Basic(nn.Module):
    """torchvision's basic block: one ReLU module used twice, a shortcut of 1x1."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        down = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.downsample = down if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += self.downsample(x)
        return self.relu(out)


def _check_frozen(binary, x, tolerance=1e-5):
    frozen = bitgnn.freeze(binary)
    with torch.no_grad():
        torch.testing.assert_close(frozen(x), binary(x), rtol=tolerance, atol=tolerance)
    return frozen


def test_layers_are_swapped_with_their_weights_and_numbers_and_freeze():
    torch.manual_seed(0)
    model = _vgg()
    binary = bitgnn.binarize(model, ImageConfig(activation="hardtanh", **ENDS))
    report = report_of(binary)
    assert report.swapped == {"0": "FBF", "3": "BBF", "6": "BBF", "11": "BBF", "15": "BBF"}
    assert report.replaced == dict.fromkeys(("2", "5", "8", "13"), "Hardtanh")
    assert not report.left
    assert not report.warnings
    assert isinstance(binary[3], BinaryConv2d)
    assert (binary[3].groups, binary[3].padding, binary[3].bias) == (16, (1, 1), None)
    assert (binary[0].input_step, binary[3].input_step) == (2.0**-12, None)
    assert torch.equal(binary[11].weight, model[11].weight)
    assert type(model[0]) is nn.Conv2d
    frozen = _check_frozen(trained(binary), torch.randn(3, 3, 8, 8))
    assert [step.kind for step in frozen.program.calls] == [
        "readable", "conv_fbb", "conv_bbb", "conv_bbb", "pool_bits", "flatten_bits", "bmm_bbb",
        "bmm_bbf",
    ]  # fmt: skip


def test_a_residual_network_with_norms_inside_keeps_float_sums():
    torch.manual_seed(1)
    network = nn.Sequential(
        nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1), Basic(16, 16, 1), Basic(16, 32, 2),
        nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(32, 5),
    )  # fmt: skip
    config = ImageConfig(activation="hardtanh", first="binary", last="keep", input_step=2.0**-8)
    binary = trained(bitgnn.binarize(network, config))
    assert report_of(binary).left == {"8": "it is the last layer"}
    with pytest.warns(UserWarning, match="stay in full precision"):
        frozen = _check_frozen(binary, torch.randn(2, 3, 32, 32), 1e-4)
    assert {"conv_bbb", "conv_bbf", "conv_fbf"} <= {step.kind for step in frozen.program.calls}


def test_relus_in_front_of_signs_are_warned_of():
    with pytest.warns(UserWarning, match=r"binarize: ReLU \(2\) feeds the sign of 3"):
        binary = bitgnn.binarize(_vgg(), ImageConfig(activation="keep", **ENDS))
    assert [text.split(":")[0] for text in report_of(binary).warnings] == [
        f"ReLU ({relu}) feeds the sign of {layer}"
        for relu, layer in (("2", "3"), ("5", "6"), ("8", "11"), ("13", "15"))
    ]


def test_layers_at_the_ends_that_hold_few_weights_stay_in_floats():
    torch.manual_seed(2)
    binary = trained(bitgnn.binarize(_vgg()))
    report = report_of(binary)
    assert report.swapped == {"3": "BBF", "6": "BBF", "11": "BBF"}
    assert report.left == {
        "0": "it is the first layer and has 432 of 13408 weights",
        "15": "it is the last layer and has 160 of 13408 weights",
    }
    # No sign reads what the last layer reads: its ReLU stays.
    assert report.replaced == dict.fromkeys(("2", "5", "8"), "Identity")
    assert isinstance(binary[2], nn.Identity)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _check_frozen(binary, torch.randn(3, 3, 8, 8))
    said = r"15: it is the last .*; 3: BinaryConv2d is binary alre"
    with pytest.warns(UserWarning, match=said):
        assert report_of(bitgnn.binarize(binary)).swapped == {}


@pytest.mark.parametrize(
    ("widths", "swapped"),
    [
        ((5, 45, 5), ["0", "1"]),  # a half each
        ((5, 11, 45, 1), ["1"]),  # 55 and 45 of 595
        ((6, 11, 45, 1), ["0", "1"]),  # 66 of 606
    ],
)
def test_a_tenth_of_the_weights_is_few(widths, swapped):
    model = nn.Sequential(*(nn.Linear(*pair) for pair in itertools.pairwise(widths)))
    assert list(report_of(bitgnn.binarize(model)).swapped) == swapped


@pytest.mark.parametrize(
    ("options", "ends"),
    [
        ({"first": "binary"}, {"0"}),
        ({"last": "binary"}, {"15"}),
        ({"input_step": None}, {"0"}),
        ({"input_step": None, "first": "keep"}, set()),
    ],
)
def test_what_is_asked_for_at_the_ends_goes_before_the_share_of_weights(options, ends):
    report = report_of(bitgnn.binarize(_vgg(), ImageConfig(**options)))
    assert set(report.swapped) == {"3", "6", "11"} | ends


def test_ends_that_are_kept():
    plain = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    kept = bitgnn.binarize(plain, ImageConfig(first="keep", last="keep")).eval()
    assert report_of(kept).left == {"1": "it is the first layer", "3": "it is the last layer"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "in floats" in str(bitgnn.freeze(kept).report)


def test_what_is_asked_for_is_kept_or_changed():
    config = ImageConfig(skip=("3",), input_step=None, scale=False, last="norm", activation="drop")
    binary = bitgnn.binarize(_vgg(), config)
    assert report_of(binary).left == {"3": "named in skip"}
    assert type(binary[3]) is nn.Conv2d
    assert (binary[0].input_step, binary[0].scale) == (None, False)
    assert isinstance(binary[15][0], BinaryLinear)
    assert binary[15][1].num_features == 5
    frozen = bitgnn.freeze(trained(binary))
    assert frozen.report.folded == {"15.0": "takes the batch norm 15.1 into its scale and bias"}


def test_what_has_no_binary_form_is_left_alone():
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3, groups=2), nn.Hardtanh(), nn.ConvTranspose2d(8, 8, 2),
        nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(8 * 25, 3),
    )  # fmt: skip
    binary = bitgnn.binarize(model)
    left = report_of(binary).left
    assert left["0"] == "as a first layer it has no fixed-point form in 2 groups"
    assert left["2"] == "ConvTranspose2d has no binary form here"
    with pytest.warns(UserWarning, match="2: it runs as its own code"):
        _check_frozen(binary.eval(), torch.randn(2, 4, 8, 8), 1e-4)


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)) if x.sum() > 0 else self.first(x)


def test_fully_connected_networks_and_models_that_cannot_be_traced():
    mlp = nn.Sequential(nn.Flatten(), nn.Linear(20, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    assert report_of(bitgnn.binarize(mlp)).swapped == {"1": "FBF", "3": "BBF"}
    with pytest.warns(UserWarning, match="the forward of Branching cannot be traced"):
        binary = bitgnn.binarize(Branching())
    assert report_of(binary).swapped == {"first": "FBF", "second": "BBF"}


def _one(**options):
    return lambda: bitgnn.binarize(nn.Sequential(nn.Conv2d(3, 4, 3)), ImageConfig(**options))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (_one(skip=("9",)), ValueError, r"named \['9'\], the model has"),
        (_one(dropout=0.5), TypeError, r"ImageConfig: fields are .*, got dropout \(a field of Gr"),
        (_one(first="middle"), ValueError, "first must be one of"),
        (_one(last="middle"), ValueError, "last must be one of"),
        (_one(input_step=0.3), ValueError, "power of two"),
        (
            lambda: bitgnn.binarize(_vgg(), GraphConfig(linear=True)),
            ValueError,
            "must be of type ImageConfig for a model with conv",
        ),
    ],
)
def test_bad_configurations_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("options", "message"), [({"skip": ("0",)}, "named in skip"), ({"first": "keep"}, "it is the")]
)
def test_a_network_without_a_layer_to_swap_stays_as_it_is(options, message):
    with pytest.warns(UserWarning, match=f"has no layer to swap; 0: {message}"):
        binary = _one(**options)()
    assert type(binary[0]) is nn.Conv2d
    assert report_of(binary).float_share == 1.0


def test_transformers_are_told_of_their_configuration():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    said = r"attention, which stays in floats; .* BWTAConfig\(\) is the one for transformers"
    with pytest.warns(UserWarning, match=f"binarize: TransformerEncoderLayer has {said}"):
        binary = bitgnn.binarize(layer)
    assert report_of(binary).swapped == {"linear1": "BBF", "linear2": "BBF"}
    assert "BWTAConfig()" in str(report_of(binary))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for config in (ImageConfig(), BWTAConfig()):
            bitgnn.binarize(layer, config)
        bitgnn.binarize(nn.Sequential(nn.Conv2d(3, 4, 3)))
