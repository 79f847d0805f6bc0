"""freeze() of convolutional and fully connected networks: the same decisions as in training."""

import pytest
import torch
from image_networks import Net, expected_of, frozen_quietly, plain, residual, trained
from torch import Tensor, nn

import bitgnn
from bitgnn.bits import BitTensor
from bitgnn.inference import FrozenImages
from bitgnn.nn import BinaryConv2d, BinaryLinear

SEEDS = range(8)


def _kinds(frozen: FrozenImages) -> list[str]:
    return [step.kind for step in frozen.program.steps]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scale", [False, True])
def test_plain_networks_give_the_same_scores(seed, scale):
    torch.manual_seed(seed)
    model, x = plain(seed, scale)
    frozen, expected = frozen_quietly(model), expected_of(model, x)
    if not scale:
        assert torch.equal(frozen_quietly(model, fold=False)(x), expected)
    torch.testing.assert_close(frozen(x), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(frozen(x).argmax(1), expected.argmax(1))
    assert torch.equal(frozen(frozen.pack_features(x)), frozen(x))
    assert not frozen.report.floats


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("scale", "norm_inside"), [(False, False), (True, False), (False, True)])
def test_residual_networks_give_the_same_scores(seed, scale, norm_inside):
    torch.manual_seed(seed)
    model, x = residual(seed, scale, norm_inside)
    frozen, expected = frozen_quietly(model), expected_of(model, x)
    if not scale:
        assert torch.equal(frozen_quietly(model, fold=False)(x), expected)
    torch.testing.assert_close(frozen(x), expected, rtol=1e-5, atol=1e-5)
    kinds = _kinds(frozen)
    assert ("conv_add" in kinds) == (not scale)  # bottlenecks have no norm inside
    assert ("add" in kinds) == (scale or norm_inside)


def _first(channels: int, out: int, step: float = 2.0**-6, **options: object) -> BinaryConv2d:
    return BinaryConv2d(channels, out, 3, padding=1, bias=False, input_step=step, **options)


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
    assert _kinds(frozen)[:2] == ["conv_fbb", "pool_bits"]
    assert torch.equal(frozen(x), expected)
    assert torch.equal(frozen(x.contiguous(memory_format=torch.channels_last)), expected)
    assert torch.equal(frozen(x.repeat(1, 1, 2, 2)[:, :, :10, :10]), expected)
    with pytest.raises(ValueError, match="pack_features: this model takes floats"):
        frozen.pack_features(x)


def test_bytes_of_images_are_taken_as_they_are():
    torch.manual_seed(2)
    model = trained(nn.Sequential(_first(3, 8, 1.0), nn.BatchNorm2d(8), nn.Flatten(),
                                  BinaryLinear(8 * 36, 5)))  # fmt: skip
    x = torch.randint(256, (2, 3, 6, 6), dtype=torch.uint8)
    assert torch.equal(frozen_quietly(model)(x), expected_of(model, x))


@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize("step", [None, 2.0**-4])
def test_fully_connected_networks(flatten, step):
    torch.manual_seed(3)
    layers = [
        BinaryLinear(50, 33, bias=False, scale=False, input_step=step), nn.BatchNorm1d(33),
        nn.Hardtanh(), BinaryLinear(33, 64), nn.BatchNorm1d(64), nn.Hardtanh(),
        BinaryLinear(64, 4, bias=False, scale=False), nn.BatchNorm1d(4),
    ]  # fmt: skip
    model = trained(nn.Sequential(*([nn.Flatten()] if flatten else []), *layers))
    x = torch.randn(7, 50)
    frozen, expected = frozen_quietly(model, fold=False), expected_of(model, x)
    assert torch.equal(frozen(x), expected)
    if flatten:
        assert torch.equal(frozen(x.view(7, 2, 5, 5)), expected)
    if step is None:
        packed = frozen.pack_features(x)
        assert isinstance(packed, BitTensor)
        assert torch.equal(frozen(packed), expected)


def test_shortcuts_of_option_a_are_added_in_integers():
    torch.manual_seed(4)
    plain_options = {"bias": False, "scale": False}

    def forward(self, x):
        a = self.conv1(self.norm0(self.stem(x)))
        b = self.conv2(self.norm1(a)) + self.short1(a)
        c = self.short2(b) + self.conv3(self.norm2(b))
        return self.head(torch.flatten(self.norm3(c), 1))

    model = trained(
        Net(
            forward,
            stem=_first(3, 32), norm0=nn.BatchNorm2d(32),
            conv1=BinaryConv2d(32, 40, 3, padding=1, **plain_options), norm1=nn.BatchNorm2d(40),
            conv2=BinaryConv2d(40, 64, 3, 2, 1, **plain_options), norm2=nn.BatchNorm2d(64),
            short1=bitgnn.nn.ChannelShortcut(40, 64, 2),
            conv3=BinaryConv2d(64, 64, 3, padding=1, **plain_options), norm3=nn.BatchNorm2d(64),
            short2=bitgnn.nn.ChannelShortcut(64, 64),
            head=BinaryLinear(64 * 16, 10, bias=False),
        )
    )  # fmt: skip
    x = torch.randn(2, 3, 8, 8)
    frozen = bitgnn.freeze(model)
    assert torch.equal(frozen(x), expected_of(model, x))
    assert _kinds(frozen) == [
        "conv_fbb", "conv_add", "conv_add", "conv_add", "flatten_bits", "bmm_bbf"
    ]  # fmt: skip
    boundaries = frozen.report.boundaries
    assert boundaries["conv1"] == boundaries["conv2"] == "int16 sums and bits"
    assert boundaries["conv3"] == "bits"


def test_sums_beyond_16_bits_are_wide():
    torch.manual_seed(5)
    model = trained(
        Net(
            lambda self, x: self.head(
                self.norm(self.conv2(a := self.conv1(x)) + a).flatten(1)
            ),
            conv1=BinaryConv2d(1900, 3, 3, padding=1, bias=False, scale=False),
            conv2=BinaryConv2d(3, 3, 25, padding=12, groups=1, bias=False, scale=False),
            norm=nn.BatchNorm2d(3), head=BinaryLinear(3 * 16, 2, scale=False),
        )
    )  # fmt: skip
    x = torch.rand(1, 1900, 4, 4)
    frozen = bitgnn.freeze(model)
    model.conv1.weight.data.abs_()
    assert torch.equal(bitgnn.freeze(model)(x), expected_of(model, x))
    assert frozen.report.boundaries["conv1"] == "int16 sums and bits"
    model = nn.Sequential(_Wide(), nn.Flatten(), BinaryLinear(3 * 16, 2, scale=False)).eval()
    model[0].conv1.weight.data.abs_()
    x = torch.rand(1, 3700, 4, 4)
    frozen = bitgnn.freeze(model)
    assert frozen.report.boundaries["0.conv1"] == "int32 sums and bits"
    assert torch.equal(frozen(x), expected_of(model, x))


class _Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = BinaryConv2d(3700, 3, 3, padding=1, bias=False, scale=False)
        self.conv2 = BinaryConv2d(3, 3, 3, padding=1, bias=False, scale=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        return self.conv2(x) + x - 33000


def test_averages_means_and_floats_between_layers():
    torch.manual_seed(6)
    model = trained(
        nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.Hardtanh(),
            BinaryConv2d(16, 32, 3, padding=1, bias=False, scale=False), nn.AvgPool2d(2),
            nn.BatchNorm2d(32), BinaryConv2d(32, 64, 3, padding=1, groups=32), nn.PReLU(),
            BinaryConv2d(64, 24, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 6),
            nn.Softmax(1),
        )
    )  # fmt: skip
    x = torch.randn(2, 3, 12, 12)
    with pytest.warns(UserWarning, match="7: it runs as its own code"):
        frozen = bitgnn.freeze(model)
    torch.testing.assert_close(frozen(x), expected_of(model, x), rtol=1e-5, atol=1e-5)
    assert frozen.report.floats["5"] == "a sign is taken of floats that avg_pool computes"
    assert torch.equal(frozen_quietly(model, output="classes")(x), expected_of(model, x).argmax(1))


def test_signs_shapes_and_own_code_in_a_forward():
    torch.manual_seed(7)

    def forward(self, x):
        x = bitgnn.quantize.binary_sign(self.norm(self.conv1(x)))
        y = torch.cat([x, bitgnn.quantize.sgn(self.conv2(x))], dim=1)
        y = nn.functional.max_pool2d(self.norm2(self.conv3(y)), 2)
        y = nn.functional.dropout(y, training=self.training) * x.size(3)
        return self.head(y.reshape(-1, 40 * 3 * 3))

    model = trained(
        Net(
            forward, conv1=BinaryConv2d(4, 32, 3, padding=1), norm=nn.BatchNorm2d(32),
            conv2=BinaryConv2d(32, 32, 3, padding=1), conv3=BinaryConv2d(64, 40, 3, padding=1),
            norm2=nn.BatchNorm2d(40), head=BinaryLinear(360, 5),
        )
    )  # fmt: skip
    x = torch.randn(2, 4, 6, 6)
    torch.testing.assert_close(
        frozen_quietly(model)(x), expected_of(model, x), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("first", [None, 2.0**-5])
def test_constants_of_channels_in_front_are_kept_or_folded(first, tmp_path):
    torch.manual_seed(8)

    class Normalized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.rand(1, 3, 1, 1))
            self.register_buffer("std", torch.tensor([0.3, -0.2, 0.7]).view(3, 1, 1))
            self.shift = nn.Parameter(torch.randn(3, 1, 1))
            self.conv = BinaryConv2d(3, 8, 3, input_step=first)
            self.head = BinaryLinear(8 * 16, 4)

        def forward(self, x):
            x = (x - self.mean) / self.std * (1 + self.shift) + self.shift
            return self.head(self.conv(x).flatten(1))

    model, x = Normalized().eval(), torch.rand(2, 3, 6, 6)
    frozen, expected = frozen_quietly(model), expected_of(model, x)
    assert torch.equal(frozen(x), expected)
    assert not frozen.report.floats
    if first is None:
        assert _kinds(frozen)[:2] == ["pack_images", "flip_images"]
        assert torch.equal(frozen(frozen.pack_features(x)), expected)
    else:
        assert _kinds(frozen)[:5] == ["to_float", "bias", "divisor", "gain", "bias"]
    assert torch.equal(bitgnn.load(bitgnn.save(frozen, tmp_path))(x), expected)


@pytest.mark.parametrize("inputs", ["none", "rgb", "grey", "lbp"])
def test_binarisations_of_the_input(inputs, tmp_path):
    torch.manual_seed(9)
    model = bitgnn.models.bincnn(inputs=inputs).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("threshold"):
            nn.init.normal_(parameter)
    x = torch.randn(1, *model.image)
    frozen = frozen_quietly(model)
    assert torch.equal(frozen(x), expected_of(model, x))
    assert not frozen.report.floats
    assert torch.equal(bitgnn.load(bitgnn.save(frozen, tmp_path))(x), frozen(x))
    if inputs != "none":
        assert torch.equal(frozen(frozen.pack_features(x)), frozen(x))
        kinds = _kinds(frozen)
        assert kinds[kinds.index("pack_patches") + 1] == "patches_bbb"
