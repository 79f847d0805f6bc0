"""freeze() of convolutional and fully connected networks: the same decisions as in training."""

import pytest
import torch
from image_networks import Net, expected_of, frozen_quietly, plain, residual, trained
from torch import Tensor, nn

import bitgnn
from bitgnn.bits import BitTensor
from bitgnn.nn import BinaryConv2d, BinaryLinear

SEEDS = range(8)
BARE = {"bias": False, "scale": False}


def checked(model, x, exact=True, **options):
    """The frozen model, which gives the scores of the trained one."""
    frozen, expected = frozen_quietly(model, **options), expected_of(model, x)
    tolerance = 0.0 if exact else 1e-5
    torch.testing.assert_close(frozen(x), expected, rtol=tolerance, atol=tolerance)
    return frozen


def _kinds(frozen) -> list[str]:
    return [step.kind for step in frozen.program.calls]


def _conv(channels: int, out: int, **options: object) -> BinaryConv2d:
    return BinaryConv2d(channels, out, 3, padding=1, **options)


def _first(channels: int, out: int, step: float = 2.0**-6, **options: object) -> BinaryConv2d:
    return _conv(channels, out, bias=False, input_step=step, **options)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scale", [False, True])
def test_plain_networks_give_the_same_scores(seed, scale):
    torch.manual_seed(seed)
    model, x = plain(seed, scale)
    if not scale:
        checked(model, x, fold=False)
    frozen = checked(model, x, exact=False)
    assert torch.equal(frozen(x).argmax(1), expected_of(model, x).argmax(1))
    assert torch.equal(frozen(frozen.pack_features(x)), frozen(x))
    assert not frozen.report.floats


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("scale", "norm_inside"), [(False, False), (True, False), (False, True)])
def test_residual_networks_give_the_same_scores(seed, scale, norm_inside):
    torch.manual_seed(seed)
    model, x = residual(seed, scale, norm_inside)
    if not scale:
        checked(model, x, fold=False)
    kinds = _kinds(checked(model, x, exact=False))
    assert ("conv_add" in kinds) == (not scale)  # bottlenecks have no norm inside
    assert ("add" in kinds) == (scale or norm_inside)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_first_layers_read_fixed_point(scale, dtype):
    torch.manual_seed(1)
    model = trained(
        nn.Sequential(
            _first(3, 33, scale=scale), nn.MaxPool2d(2), nn.BatchNorm2d(33), nn.Hardtanh(),
            BinaryConv2d(33, 20, 3, scale=scale, bias=False), nn.BatchNorm2d(20), nn.Hardtanh(),
            nn.Flatten(), BinaryLinear(20 * 9, 10, scale=scale),
        )
    )  # fmt: skip
    x = torch.randn(3, 3, 10, 10).to(dtype)
    frozen, expected = frozen_quietly(model), expected_of(model, x.float())
    assert _kinds(frozen)[1:3] == ["conv_fbb", "pool_bits"]
    channels_last = x.contiguous(memory_format=torch.channels_last)
    for same in (x, channels_last, x.repeat(1, 1, 2, 2)[:, :, :10, :10]):
        assert torch.equal(frozen(same), expected)
    with pytest.raises(ValueError, match="pack_features: this model takes floats"):
        frozen.pack_features(x)


def test_bytes_of_images_are_taken_as_they_are():
    torch.manual_seed(2)
    layers = _first(3, 8, 1.0), nn.BatchNorm2d(8), nn.Flatten(), BinaryLinear(8 * 36, 5)
    checked(trained(nn.Sequential(*layers)), torch.randint(256, (2, 3, 6, 6), dtype=torch.uint8))


@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize("step", [None, 2.0**-4])
def test_fully_connected_networks(flatten, step):
    torch.manual_seed(3)
    layers = [
        BinaryLinear(50, 33, input_step=step, **BARE), nn.BatchNorm1d(33), nn.Hardtanh(),
        BinaryLinear(33, 64), nn.BatchNorm1d(64), nn.Hardtanh(),
        BinaryLinear(64, 4, **BARE), nn.BatchNorm1d(4),
    ]  # fmt: skip
    model = trained(nn.Sequential(*([nn.Flatten()] if flatten else []), *layers))
    x = torch.randn(7, 50)
    frozen = checked(model, x, fold=False)
    if flatten:
        assert torch.equal(frozen(x.view(7, 2, 5, 5)), frozen(x))
    if step is None:
        packed = frozen.pack_features(x)
        assert isinstance(packed, BitTensor)
        assert torch.equal(frozen(packed), frozen(x))


def test_shortcuts_of_option_a_are_added_in_integers():
    torch.manual_seed(4)

    def forward(self, x):
        a = self.conv1(self.norm0(self.stem(x)))
        b = self.conv2(self.norm1(a)) + self.short1(a)
        c = self.short2(b) + self.conv3(self.norm2(b))
        return self.head(torch.flatten(self.norm3(c), 1))

    model = trained(
        Net(
            forward,
            stem=_first(3, 32), norm0=nn.BatchNorm2d(32),
            conv1=_conv(32, 40, **BARE), norm1=nn.BatchNorm2d(40),
            conv2=BinaryConv2d(40, 64, 3, 2, 1, **BARE), norm2=nn.BatchNorm2d(64),
            short1=bitgnn.nn.ChannelShortcut(40, 64, 2),
            conv3=_conv(64, 64, **BARE), norm3=nn.BatchNorm2d(64),
            short2=bitgnn.nn.ChannelShortcut(64, 64), head=BinaryLinear(64 * 16, 10, bias=False),
        )
    )  # fmt: skip
    frozen = checked(model, torch.randn(2, 3, 8, 8))
    kinds = ["readable", "conv_fbb", *["conv_add"] * 3, "flatten_bits", "bmm_bbf"]
    assert _kinds(frozen) == kinds
    boundaries = frozen.report.boundaries
    assert boundaries["conv1"] == boundaries["conv2"] == "int16 sums and bits"
    assert boundaries["conv3"] == "bits"


@pytest.mark.parametrize(("channels", "bits"), [(1900, 16), (3700, 32)])
def test_sums_beyond_16_bits_are_wide(channels, bits):
    torch.manual_seed(5)
    model = trained(
        Net(
            lambda self, x: self.head(
                (self.conv2(a := self.conv1(x)) + a - 17000 * (channels > 1900)).flatten(1)
            ),
            conv1=_conv(channels, 3, **BARE),
            conv2=BinaryConv2d(3, 3, 25, padding=12, **BARE),
            head=BinaryLinear(3 * 16, 2, scale=False),
        )
    )  # fmt: skip
    model.conv1.weight.data.abs_()
    frozen = checked(model, torch.rand(1, channels, 4, 4))
    assert frozen.report.boundaries["conv1"] == f"int{bits} sums and bits"


def test_averages_means_and_floats_between_layers():
    torch.manual_seed(6)
    model = trained(
        nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.Hardtanh(),
            _conv(16, 32, **BARE), nn.AvgPool2d(2), nn.BatchNorm2d(32),
            _conv(32, 64, groups=32), nn.PReLU(), BinaryConv2d(64, 24, 1),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 6), nn.Softmax(1),
        )
    )  # fmt: skip
    x = torch.randn(2, 3, 12, 12)
    with pytest.warns(UserWarning, match="7: it runs as its own code"):
        frozen = bitgnn.freeze(model)
    torch.testing.assert_close(frozen(x), expected_of(model, x), rtol=1e-5, atol=1e-5)
    assert frozen.report.floats["5"] == "a sign is taken of floats that avg_pool computes"
    assert torch.equal(frozen_quietly(model, output="classes")(x), expected_of(model, x).argmax(1))


class Normalized(nn.Module):
    """Constants of channels in front of the first layer."""

    def __init__(self, first) -> None:
        super().__init__()
        self.register_buffer("mean", torch.rand(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.3, -0.2, 0.7]).view(3, 1, 1))
        self.shift = nn.Parameter(torch.randn(3, 1, 1))
        self.conv, self.head = BinaryConv2d(3, 8, 3, input_step=first), BinaryLinear(8 * 16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = (x - self.mean) / self.std * (1 + self.shift) + self.shift
        return self.head(self.conv(x).flatten(1))


@pytest.mark.parametrize("first", [None, 2.0**-5])
def test_constants_of_channels_in_front_are_kept_or_folded(first, tmp_path):
    torch.manual_seed(8)
    x = torch.rand(2, 3, 6, 6)
    frozen = checked(Normalized(first).eval(), x)
    assert not frozen.report.floats
    if first is None:
        assert _kinds(frozen)[:2] == ["pack_images", "bitwise_xor"]
        assert torch.equal(frozen(frozen.pack_features(x)), frozen(x))
    else:
        assert _kinds(frozen)[:5] == ["to", "bias", "divisor", "gain", "bias"]
    assert torch.equal(bitgnn.load(bitgnn.save(frozen, tmp_path))(x), frozen(x))


@pytest.mark.parametrize("outside", [0, -1])
@pytest.mark.parametrize("inputs", ["none", "rgb", "grey", "lbp"])
def test_binarisations_of_the_input(inputs, outside, tmp_path):
    torch.manual_seed(9)
    size = 96 if outside == 0 else 13
    model = bitgnn.models.bincnn(inputs=inputs, image_size=size, padding_value=outside).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("threshold"):
            nn.init.normal_(parameter)
    x = torch.randn(1, *model.image)
    frozen = checked(model, x)
    assert not frozen.report.floats
    assert torch.equal(bitgnn.load(bitgnn.save(frozen, tmp_path))(x), frozen(x))
    if inputs != "none":
        assert torch.equal(frozen(frozen.pack_features(x)), frozen(x))
    kinds = _kinds(frozen)
    if outside:
        assert kinds.count("constant_pad_nd") == (1 if inputs == "none" else 2)
    elif inputs != "none":
        assert kinds[kinds.index("pack_patches") + 1] == "conv_bbb"


def test_pixels_outside_count_as_minus_one_beside_a_shortcut(tmp_path):
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            given = {"bias": False, "scale": False, "padding_value": -1}
            self.first = BinaryConv2d(3, 40, 3, padding=1, bias=False, scale=False)
            self.norm, self.second_norm = nn.BatchNorm2d(40), nn.BatchNorm2d(40)
            self.second = BinaryConv2d(40, 40, (3, 2), padding="same", groups=2, **given)
            self.last = BinaryConv2d(40, 5, 3, padding=(0, 2), stride=2, **given)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            sums = self.first(x)
            sums = self.second(self.norm(sums)) + sums
            return self.last(self.second_norm(sums)).mean((2, 3))

    torch.manual_seed(2)
    model, x = Network(), torch.randn(4, 3, 9, 8)
    for _ in range(3):
        model(x)
    frozen = checked(model.eval(), x)
    assert not frozen.report.floats
    assert _kinds(frozen).count("constant_pad_nd") == 2
    assert torch.equal(bitgnn.load(bitgnn.save(frozen, tmp_path))(x), frozen(x))
