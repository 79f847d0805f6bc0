"""Networks for images: the papers' structures in both precisions, integers on shortcuts, BinCNN."""

import pytest
import torch
from torch import fx, nn
from torch.nn import functional

from bitgnn.models import IMAGE_NETWORKS, MLP, VGG, BinCNN, ResNet, alexnet, bincnn, resnet
from bitgnn.models.bincnn import GreyThreshold, LocalBinaryPatterns, RGBThreshold
from bitgnn.models.resnet import Block
from bitgnn.nn import BinaryConv2d, BinaryLinear, ChannelShortcut

# The two deepest are the same code as ResNet-50; BinCNN has tests of its own below.
OTHERS = ("resnet101", "resnet152", "bincnn")
NAMES = [name for name in IMAGE_NETWORKS if name not in OTHERS]
SMALLEST = {"mlp": 28, "alexnet": 32, "vgg": 8, "resnet14": 16}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def _small(name: str, precision: str = "binary", **options) -> nn.Module:
    """A network of few channels on the smallest images."""
    if name != "mlp":
        options["image_size"] = SMALLEST.get(name, 32)
    return IMAGE_NETWORKS[name](precision, classes=7, width=0.1, **options)


@pytest.mark.parametrize(
    ("name", "weights"),
    # He et al.'s counts of layers: convolutions of three (two) a block, stem and one linear layer.
    [("resnet18", 18), ("resnet50", 50), ("resnet101", 101), ("resnet152", 152)],
)
def test_depths_are_the_names(name, weights):
    with torch.device("meta"):
        network = IMAGE_NETWORKS[name]()
    layers = [m for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    # These end in two linear layers in place of one.
    assert len(layers) - 1 == weights
    shortcuts = [m for m in network.modules() if isinstance(m, ChannelShortcut)]
    assert [m.stride for m in shortcuts].count(2) == 3
    assert network.features[-1].num_features == (512 if weights == 18 else 2048)


@pytest.mark.parametrize("precision", ["binary", "fp32"])
@pytest.mark.parametrize("name", NAMES)
def test_forward_backward_and_trace(name, precision):
    network = _small(name, precision).train()
    x = torch.randn(3, *network.image)
    scores = network(x)
    assert scores.shape == (3, 7)
    functional.cross_entropy(scores, torch.tensor([0, 1, 2])).backward()
    for parameter, value in network.named_parameters():
        assert value.grad is not None, parameter
        assert value.grad.isfinite().all()
    network.eval()
    leaves = (BinaryConv2d, BinaryLinear, ChannelShortcut)

    class Tracer(fx.Tracer):
        def is_leaf_module(self, module: nn.Module, name: str) -> bool:
            return isinstance(module, leaves) or super().is_leaf_module(module, name)

    traced = fx.GraphModule(network, Tracer().trace(network))
    with torch.no_grad():
        assert torch.equal(traced(x), network(x))


@pytest.mark.parametrize("name", NAMES)
def test_binary_networks_have_one_first_layer_and_integers_inside(name):
    network = _small(name, input_step=0.5).eval()
    layers = [m for m in network.modules() if isinstance(m, BinaryConv2d | BinaryLinear)]
    assert [layer.input_step for layer in layers] == [0.5] + [None] * (len(layers) - 1)
    assert all(layer.bias is None and not layer.scale for layer in layers)
    kinds = [type(m) for m in network.modules()]
    assert nn.ReLU not in kinds
    assert kinds.count(nn.BatchNorm1d) + kinds.count(nn.BatchNorm2d) == len(layers)
    sums = []
    for block in network.features:
        if isinstance(block, Block):
            block.register_forward_hook(lambda _m, _x, out: sums.append(out))
    with torch.no_grad():
        network(torch.randn(2, *network.image))
    assert bool(sums) == name.startswith("resnet")
    assert all(torch.equal(s, s.round()) and s.abs().max() > 1 for s in sums)


def test_shortcuts_carry_the_sums():
    network = _small("resnet18").eval()
    blocks = [m for m in network.features if isinstance(m, Block)]
    assert [block.shortcut is None for block in blocks] == [True] + [False] * 7
    x = torch.randint(-9, 9, (2, 6, 4, 4)).float()
    with torch.no_grad():
        block = blocks[1]
        assert torch.equal(block(x), block.body(x) + x)
        block = blocks[2]
        strided = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, 13 - 6))
        assert torch.equal(block(x), block.body(x) + strided)


def test_vectors_and_binarised_inputs():
    network = _small("mlp").eval()
    x = torch.randn(5, 1, 28, 28)
    assert torch.equal(network(x), network(x.flatten(1)))
    signs = _small("vgg", input_step=None).eval()
    assert signs.features[0].input_step is None
    x = torch.randn(2, *signs.image)
    assert torch.equal(signs(x), signs(x.sign()))


@pytest.mark.parametrize("name", ["mlp", "resnet14"])
def test_binary_networks_learn(name):
    network = _small(name)
    x = torch.randn(35, *network.image) * 0.5
    target = torch.arange(35) % 7
    for i in range(7):  # a bright square in the place of each class
        x[target == i, :, 2 * i : 2 * i + 4, :8] += 1.5
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(25):
        optimiser.zero_grad()
        functional.cross_entropy(network(x), target).backward()
        optimiser.step()
    assert (network(x).argmax(1) == target).float().mean() > 0.9


def test_bincnn_has_the_papers_structure():
    network = bincnn()
    weights = [(32, 3, 5, 5), (32, 32, 5, 5), (100, 18432), (100, 100), (4, 100)]
    for one in (network, bincnn("fp32")):
        assert [tuple(m.weight.shape) for m in one.modules() if hasattr(m, "weight")] == weights
    kinds = {type(m) for m in network.modules()}
    assert not kinds & {nn.BatchNorm2d, nn.BatchNorm1d, nn.ReLU}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("inputs", ["none", "rgb", "grey", "lbp"])
def test_forms_of_bincnn_run_and_train(inputs, strict):
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


def test_threshold_is_learnt_in_a_second_stage():
    network = bincnn(width=0.2, image_size=8, strict_sign=True, surrogate="identity")
    x, target = torch.rand(12, 3, 8, 8), torch.arange(12) % 4
    for part in ("weights", "threshold"):
        network.learn(part)
        before = {name: value.clone() for name, value in network.state_dict().items()}
        optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
        optimiser.zero_grad()
        functional.cross_entropy(network(x), target).backward()
        optimiser.step()
        after = network.state_dict().items()
        changed = {name for name, value in after if not torch.equal(value, before[name])}
        weights = {name for name in before if name.endswith("weight")}
        assert changed == (weights if part == "weights" else {"features.0.threshold"})


def test_layers_of_bincnn_have_its_options():
    network = bincnn(inputs="none", width=0.2, padding_value=-1, surrogate="identity")
    first, second = (m for m in network.modules() if isinstance(m, BinaryConv2d))
    assert (first.padding_value, second.padding_value) == (0, -1)  # floats outside are 0
    layers = [m for m in network.modules() if isinstance(m, BinaryConv2d | BinaryLinear)]
    assert {layer.surrogate for layer in layers} == {"identity"}


def test_bincnn_of_any_size():
    network = BinCNN("lbp", 3, channels=5, dense=7, image=(3, 13, 9))
    assert network(torch.randn(2, 3, 13, 9)).shape == (2, 3)
    assert sum(isinstance(m, BinaryConv2d | BinaryLinear) for m in network.modules()) == 5


def _called(name, *shape):
    return lambda: _small(name)(torch.randn(*shape))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bincnn(inputs="hsv"), r"BinCNN: inputs must be one of .*, got 'hsv'"),
        (lambda: bincnn("fp16"), r"BinCNN: precision must be one of .*, got 'fp16'"),
        (lambda: bincnn(inputs="lbp").learn("threshold"), "no threshold .* LocalBinaryPatterns"),
        (lambda: bincnn().learn("T"), "BinCNN: part must be 'weights' or 'threshold', got 'T'"),
        (lambda: bincnn(padding_value=2), "padding_value must be 0 or -1, got 2"),
        (lambda: BinCNN("grey", image=(1, 96, 96)), "three channels to make grey"),
        (lambda: BinCNN(image=(3, 3, 96)), "BinCNN: an image must have at least 4x4 pixels"),
        (lambda: bincnn()(torch.randn(1, 3, 32, 32)), r"BinCNN: x must be \[N, 3, 96, 96\]"),
        (lambda: VGG(precision="int8"), r"VGG: precision must be one of .*, got 'int8'"),
        (lambda: alexnet(width=0.1, image_size=16), "AlexNet: the image is too small .*: 1x1"),
        (lambda: ResNet(image=(3, 0, 32)), "ResNet: an image must have sizes of at least 1"),
        (lambda: ResNet(stages=((1, 64), (1, 32))), "ChannelShortcut: out_channels must be at"),
        (lambda: MLP(input_step=0.3), "the step must be a power of two"),
        (lambda: resnet(19), "resnet: depth must be one of"),
        (_called("vgg", 2, 3, 32, 32), r"VGG: x must be \[N, 3, 8, 8\], got"),
        (_called("vgg", 2, 1, 8, 8), r"VGG: x must be \[N, 3, 8, 8\], got"),
        (_called("vgg", 3, 8, 8), r"VGG: x must be \[N, 3, 8, 8\], got"),
        (_called("mlp", 2, 3, 28, 28), r"MLP: x must be \[N, 1, 28, 28\], got \[2, 3, 28, 28\]"),
        (_called("mlp", 2, 783), r"BinaryLinear: input must be \[\*, 784\]"),
    ],
)
def test_bad_arguments_and_inputs_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
