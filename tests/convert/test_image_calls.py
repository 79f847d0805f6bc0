"""Networks of images as people write them: ReLU calls, view(), bytes, other sizes and layers."""

import warnings

import numpy as np
import pytest
import torch
from image_networks import expected_of, frozen_quietly, trained
from torch import Tensor, nn
from torch.nn import functional

import bitgnn
from bitgnn import report_of
from bitgnn.nn import BinaryConv2d, BinaryLinear


class LeNet(nn.Module):
    """ReLU as a function, as a method, and behind a pool; dropout by mode; view at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear(16 * 4, 32), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.relu(functional.max_pool2d(self.conv2(x), 2))
        x = x.view(x.size(0), -1)
        x = functional.dropout(self.fc1(x).relu(), 0.1, self.training)
        return self.fc2(x)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.conv(x))


class Blocks(nn.Module):
    """A block used twice, one whose ReLU no sign reads, and one that is in front of a sign."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.twice, self.last = nn.Conv2d(3, 8, 3, padding=1), Block(), Block()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.twice(self.twice(torch.relu(self.stem(x))))).mean((2, 3))


class Branching(LeNet):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if x.sum() > 0 else -x)


class Signals(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.hidden = nn.Conv1d(3, 4, 3), nn.Linear(24, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(self.conv(x).flatten(1)))


ALL_BINARY = bitgnn.ImageConfig(first="binary", last="binary")


def test_a_network_with_relu_calls_freezes():
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = trained(bitgnn.binarize(LeNet(), ALL_BINARY))
    assert isinstance(model, LeNet)
    assert report_of(model).replaced == {
        "ReLU call before conv2": "followed by BatchNorm2d",
        "ReLU call before fc1": "followed by BatchNorm1d",
        "ReLU call before fc2": "followed by BatchNorm1d",
    }
    x = torch.randn(64, 1, 8, 8)
    frozen = frozen_quietly(model)
    torch.testing.assert_close(frozen(x), expected_of(model, x), rtol=1e-5, atol=1e-5)


def test_signs_behind_a_relu_call_differ_from_each_other():
    torch.manual_seed(1)
    model = bitgnn.binarize(LeNet(), ALL_BINARY)
    seen = {}
    for name, layer in model.named_modules():
        if isinstance(layer, BinaryConv2d | BinaryLinear):
            layer.register_forward_pre_hook(
                lambda _, args, name=name: seen.update({name: (args[0] >= 0).float().mean()})
            )
    model(torch.randn(32, 1, 8, 8))
    assert all(0.1 < share < 0.9 for name, share in seen.items() if name != "conv1")


def test_norms_are_put_where_a_sign_reads_a_relu_call():
    torch.manual_seed(2)
    model = bitgnn.binarize(Blocks())
    assert report_of(model).replaced == {
        f"ReLU call before {name}.conv": "followed by BatchNorm2d" for name in ("twice", "last")
    }
    x = torch.randn(2, 3, 6, 6)
    assert bool((model(x) >= 0).all())  # the calls themselves stay
    trained(model)
    torch.testing.assert_close(frozen_quietly(model)(x), expected_of(model, x))
    with pytest.warns(UserWarning, match=r"ReLU \(relu\) feeds the sign of twice.conv"):
        kept = bitgnn.binarize(Blocks(), bitgnn.ImageConfig(activation="keep"))
    assert list(kept.state_dict()) == list(Blocks().state_dict())


@pytest.mark.parametrize("step", [None, 2.0**-8])
def test_the_memory_format_is_that_of_the_input(step):
    layer = BinaryConv2d(4, 6, 3, padding=1, input_step=step)
    x = torch.randn(2, 4, 5, 5)
    out = layer(x)
    assert out.is_contiguous()
    assert out.view(2, -1).shape == (2, 150)
    turned = layer(x.contiguous(memory_format=torch.channels_last))
    assert turned.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(turned, out)
    layer.to(memory_format=torch.channels_last)
    assert layer(x).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("network", ["convolutions", "rows"])
def test_bytes_count_as_the_same_floats_trained_and_frozen(network):
    torch.manual_seed(3)
    x = torch.randint(256, (3, 1, 8, 8), dtype=torch.uint8)
    rows = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 3))
    model = bitgnn.binarize(rows if network == "rows" else LeNet(), ALL_BINARY).eval()
    frozen, scores = frozen_quietly(model), expected_of(model, x.float())
    assert torch.equal(expected_of(model, x), scores)
    torch.testing.assert_close(frozen(x), scores, rtol=1e-5, atol=1e-5)
    assert torch.equal(frozen(x), frozen(x.float()))


def test_what_cannot_be_is_said():
    with pytest.warns(UserWarning, match="the forward of Branching cannot be traced") as found:
        bitgnn.binarize(Branching())
    assert len(found) == 1
    signals = bitgnn.binarize(Signals(), ALL_BINARY)
    assert report_of(signals).left == {"conv": "Conv1d has no binary form here"}
    assert signals(torch.randn(2, 3, 8)).shape == (2, 2)
    transposed = nn.Sequential(nn.ConvTranspose2d(3, 4, 2), nn.ConvTranspose2d(4, 1, 2))
    binary = bitgnn.binarize(nn.Sequential(nn.Conv2d(3, 4, 3)))
    small, resnet = torch.randn(1, 3, 16, 16), bitgnn.models.resnet(14, width=0.1)
    for call, message in (
        (lambda: bitgnn.freeze(signals, output="classes"),
         r"freeze: layer 'conv' \(Conv1d\) reads the input, and a"),
        (lambda: resnet(small), r"\[N, 3, 32, 32\], got .*; image_size= \(or"),
        (lambda: bitgnn.binarize(LeNet(), "FBB+BBF"),
         r"in a network of images, .* got 'FBB\+BBF'$"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            call()
    for model, message in (
        (transposed, r"ConvTranspose2d \(0, 1\) has no binary form"),
        (nn.Sequential(nn.LazyConv2d(4, 3)), "no layer to swap; 0: it has no weight yet; run the"),
        (binary, r"BinaryConv2d \(0\) is binary already$"),
    ):
        with pytest.warns(UserWarning, match=message):
            assert report_of(bitgnn.binarize(model)).swapped == {}
    with pytest.warns(UserWarning, match="forward of Signals: it runs as its own code, layer 'con"):
        frozen = bitgnn.freeze(signals.eval())
    x = torch.randn(2, 3, 8)
    assert torch.equal(frozen(x), signals(x).detach())


@pytest.mark.parametrize("layer", [BinaryLinear(3, 2), BinaryConv2d(3, 2, 1)])
def test_inputs_that_are_no_floats_are_named(layer):
    wanted = f"{type(layer).__name__}: input must be a dense tensor of floats"
    for x, got in (
        (np.ones((1, 3, 2, 3)), "float64 ndarray"),
        (torch.ones(1, 3, 2, 3, dtype=torch.int64), r"torch\.int64 Tensor"),
        (torch.ones(1, 3, 2, 3, dtype=torch.bool), r"torch\.bool Tensor"),
        (torch.ones(1, 3, 2, 3).to_sparse(), r"torch\.sparse_coo tensor"),
    ):
        with pytest.raises(TypeError, match=f"{wanted}, got {got}"):
            layer(x)
    first = type(layer)(3, 2, *([1] if isinstance(layer, BinaryConv2d) else []), input_step=1)
    with pytest.raises(TypeError, match=f"{wanted} or uint8, got torch.int64"):
        first(torch.ones(1, 3, 2, 3, dtype=torch.int64))
