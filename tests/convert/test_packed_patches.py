"""freeze() of networks whose first convolution of signs reads packed patches."""

import copy
import json
from dataclasses import replace

import pytest
import torch
from image_networks import Net, expected_of, frozen_quietly, trained
from torch import nn

import bitgnn
from bitgnn._checksummed import sealed
from bitgnn.inference.costs import weights_of
from bitgnn.nn import BinaryConv2d, BinaryLinear


def _network(channels=3, kernel=5, scale=False, front=(), behind=(), **options):
    torch.manual_seed(3)
    return trained(
        nn.Sequential(
            *front, BinaryConv2d(channels, 40, kernel, scale=scale, bias=False, **options), *behind,
            nn.BatchNorm2d(40), nn.Hardtanh(), BinaryConv2d(40, 33, 3, bias=False),
            nn.BatchNorm2d(33), nn.Hardtanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            BinaryLinear(33, 4),
        )
    )  # fmt: skip


def _has_patches(frozen):
    kinds = [step.kind for step in frozen.program.calls]
    assert ("pack_patches" in kinds) != ("pack_images" in kinds)
    return "pack_patches" in kinds


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize(
    ("channels", "kernel", "options"),
    [
        (3, 5, {"padding": 2}),
        (1, 3, {}),
        (3, (4, 5), {"padding": (1, 3), "stride": (2, 1)}),
        (2, (3, 4), {"padding": "same", "dilation": 2}),
        (7, (8, 4), {"padding": 1}),
    ],
)
def test_few_channels_are_cut_into_patches(channels, kernel, options, scale, tmp_path):
    model = _network(channels, kernel, scale, **options)
    x = torch.randn(3, channels, 17, 15)
    x[0, 0, 0, 0] = float("nan")
    frozen, expected = frozen_quietly(model, fold=False), expected_of(model, x)
    assert _has_patches(frozen)
    assert torch.equal(frozen(x), expected)
    assert torch.equal(frozen(x.to(memory_format=torch.channels_last)), expected)
    assert torch.equal(frozen(frozen.pack_features(x)), expected)
    assert torch.equal(bitgnn.load(bitgnn.save(frozen, tmp_path))(x), expected)
    product = next(call for call in frozen.program.calls if call.kind == "conv_bbb")
    assert weights_of(frozen, product) == model[0].weight.numel()
    frozen.set_features("packed")
    with pytest.raises(ValueError, match="packed"):
        frozen(x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.uint8])
def test_patches_of_every_dtype(dtype):
    model = _network(padding=2, front=[nn.BatchNorm2d(3)])
    nn.init.ones_(model[0].weight)  # positive gains: thresholds alone stand in front
    x = (torch.rand(2, 3, 9, 8) * 255).to(dtype)
    frozen = frozen_quietly(model, fold=False)
    assert _has_patches(frozen)
    assert torch.equal(frozen(x), expected_of(model, x.float()))
    assert torch.equal(frozen(frozen.pack_features(x)), frozen(x))


def _two_readers():
    """Two convolutions of the same signs."""
    convolutions = (BinaryConv2d(3, 33, 5, bias=False) for _ in range(2))
    one, two = (nn.Sequential(layer, nn.BatchNorm2d(33)) for layer in convolutions)
    head = nn.Sequential(nn.Hardtanh(), BinaryConv2d(33, 5, 3), nn.Flatten(2))
    forward = lambda s, x: s.head(s.one(x)).mean(2) + s.head(s.two(x)).mean(2)  # noqa: E731
    return trained(Net(forward, one=one, two=two, head=head))


OTHERS = {
    "small kernel": lambda: _network(3, 3),
    "many channels": lambda: _network(16, (8, 4)),
    "33 taps": lambda: _network(3, (3, 11)),
    "groups": lambda: _network(4, 5, groups=2),
    "flipped": lambda: _network(3, 5, front=[nn.BatchNorm2d(3)]),
    "pooled": lambda: _network(3, 5, front=[nn.MaxPool2d(2)]),
    "two readers": _two_readers,
}


@pytest.mark.parametrize("case", OTHERS)
def test_others_read_packed_images(case):
    model = OTHERS[case]()
    if case == "flipped":
        nn.init.constant_(model[0].weight, -1.0)  # training has made gains of either sign
    first = next(layer for layer in model.modules() if isinstance(layer, BinaryConv2d))
    x = torch.randn(2, first.in_channels, 20, 32)
    frozen = frozen_quietly(model, fold=False)
    assert not _has_patches(frozen)
    tolerance = 1e-5 if case == "two readers" else 0.0  # whose means are of floats
    torch.testing.assert_close(frozen(x), expected_of(model, x), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("pack_patches", {"kernel": [0, 5]}, "at least 1"),
        ("pack_patches", {"padding": [0, 0]}, ""),
        ("conv_bbb", {"channels": 2}, "inputs must have size 2"),
        ("conv_bbb", {"channels": None}, ""),
    ],
)
def test_damaged_checkpoints_are_refused(kind, change, message, tmp_path):
    frozen = frozen_quietly(_network())
    folder = bitgnn.save(frozen, tmp_path)
    (path,) = tmp_path.glob("**/*.json")
    description = json.loads(path.read_text())
    number = [call.kind for call in frozen.program.calls].index(kind)
    call = frozen.program.calls[number]
    changed = replace(call, arguments=tuple({**call.named, **change}.values()))
    description["program"] = description["program"].replace(str(call), str(changed))
    path.write_text(json.dumps(sealed(description)))
    with pytest.raises(ValueError, match=rf"damaged checkpoint, call {number} .*{message}"):
        bitgnn.load(folder)


@pytest.mark.cuda
@pytest.mark.parametrize("batch", [1, 33])
def test_patches_on_a_gpu(batch):
    model, x = _network(padding=2), torch.randn(batch, 3, 31, 33)
    frozen = frozen_quietly(model, fold=False)
    on_gpu = copy.deepcopy(frozen).to("cuda")
    assert _has_patches(on_gpu)
    assert torch.equal(on_gpu(x.cuda()).cpu(), frozen(x))
    assert torch.equal(bitgnn.capture(on_gpu, x.cuda())().cpu(), frozen(x))
