"""freeze() of convolutional networks of unusual structures."""

import pytest
import torch
from image_networks import Net, expected_of, frozen_quietly, trained
from torch import nn
from torch.nn import functional

import bitgnn
from bitgnn.bits import BitImages, BitTensor
from bitgnn.inference import call_by_call
from bitgnn.nn import BinaryConv2d, BinaryLinear
from bitgnn.quantize import binary_sign as sign
from bitgnn.quantize import sgn


def _plain(channels: int, out: int, kernel: int = 3, **options: object) -> BinaryConv2d:
    return BinaryConv2d(
        channels, out, kernel, padding=kernel // 2, bias=False, scale=False, **options
    )


def _own_code(self, x):
    x = sign(self.n(self.a(x)))
    x = self.m(self.c(torch.cat([x, sgn(self.b(x))], dim=1)))
    x = functional.dropout(functional.max_pool2d(x, 2), training=self.training) * x.size(3)
    return self.head(x.reshape(-1, 40 * 6 * 6))


ODD = {
    "ceil_mode": lambda: nn.Sequential(
        _plain(3, 33), nn.MaxPool2d(2, ceil_mode=True), nn.BatchNorm2d(33), _plain(33, 8)
    ),
    "dilated pool": lambda: nn.Sequential(
        _plain(3, 33), nn.BatchNorm2d(33), nn.MaxPool2d(2, 1, dilation=2), _plain(33, 8)
    ),
    "pools without a layer between": lambda: nn.Sequential(
        _plain(3, 33), nn.MaxPool2d(2), nn.BatchNorm2d(33), nn.MaxPool2d(3, 1, 1),
        nn.Hardtanh(), nn.BatchNorm2d(33), _plain(33, 8),
    ),
    "norms on one value": lambda: Net(
        lambda s, x: s.b(s.n(a := s.a(x))) + s.c(s.m(a)) + s.d(a),
        a=_plain(3, 40), n=nn.BatchNorm2d(40), m=nn.BatchNorm2d(40),
        b=_plain(40, 8), c=_plain(40, 8), d=_plain(40, 8),
    ),
    "a sum with two norms that is read in floats": lambda: Net(
        lambda s, x: s.c(s.n(t := s.b(a := s.a(x)) + a)) + s.d(s.m(t)) + functional.silu(t),
        a=_plain(3, 40), b=_plain(40, 40), n=nn.BatchNorm2d(40), m=nn.BatchNorm2d(40),
        c=_plain(40, 40), d=_plain(40, 40),
    ),
    "a pool on a shortcut": lambda: Net(
        lambda s, x: s.c(s.n(s.b(a := s.a(x))[:, :, ::2, ::2] + functional.max_pool2d(a, 2))),
        a=_plain(3, 40), b=_plain(40, 40), n=nn.BatchNorm2d(40), c=_plain(40, 8),
    ),
    "signs and integers added": lambda: Net(
        lambda s, x: s.c(s.b(a := sgn(s.a(x))) + a),
        a=_plain(3, 40), b=_plain(40, 40), c=_plain(40, 8),
    ),
    "a value added to itself": lambda: Net(
        lambda s, x: s.b((a := s.a(x)) + a), a=_plain(3, 40), b=_plain(40, 8)
    ),
    "ends in signs": lambda: Net(
        lambda s, x: sign(s.n(s.a(x))), a=_plain(3, 40),
        n=nn.BatchNorm2d(40),
    ),
    "ends in signs of a pool": lambda: Net(
        lambda s, x: sgn(functional.max_pool2d(s.n(s.a(x)), 2)),
        a=_plain(3, 40), n=nn.BatchNorm2d(40),
    ),
    "flattened twice": lambda: Net(
        lambda s, x: s.b((y := s.n(s.a(x))).flatten(1)) + s.c(torch.flatten(y, 1)),
        a=_plain(3, 5), n=nn.BatchNorm2d(5), b=BinaryLinear(720, 3), c=BinaryLinear(720, 3),
    ),
    "flattened in floats too": lambda: Net(
        lambda s, x: s.b(y := s.n(s.a(x)).flatten(1)) + s.c(y),
        a=_plain(3, 32), n=nn.BatchNorm2d(32), b=BinaryLinear(4608, 3), c=nn.Linear(4608, 3),
    ),
    "signs flattened in floats": lambda: Net(
        lambda s, x: s.c(sgn(s.n(s.a(x)).flatten(1))),
        a=_plain(3, 32), n=nn.BatchNorm2d(32), c=nn.Linear(4608, 3),
    ),
    "channels joined": lambda: Net(
        lambda s, x: s.c(s.n(torch.cat([s.a(x), s.b(x)], 1))),
        a=_plain(3, 32), b=_plain(3, 7), n=nn.BatchNorm2d(39), c=_plain(39, 3),
    ),
    "a shortcut of a shortcut": lambda: Net(
        lambda s, x: s.c(s.n(s.b(a := s.a(x)) + s.s2(s.s1(a)))),
        a=_plain(3, 20), b=_plain(20, 40), s1=bitgnn.nn.ChannelShortcut(20, 30),
        s2=bitgnn.nn.ChannelShortcut(30, 40), n=nn.BatchNorm2d(40), c=_plain(40, 8),
    ),
    "the mean of all pixels": lambda: Net(
        lambda s, x: s.b(s.n(s.a(x)).mean((2, 3))),
        a=_plain(3, 20), n=nn.BatchNorm2d(20), b=BinaryLinear(20, 3),
    ),
    "dilation, one side and same padding": lambda: nn.Sequential(
        BinaryConv2d(3, 20, 3, padding="same", dilation=2, scale=False), nn.BatchNorm2d(20),
        BinaryConv2d(20, 9, (1, 4), (2, 1), padding=(0, 3)),
    ),
    "even kernels of same padding": lambda: nn.Sequential(
        BinaryConv2d(3, 20, 4, padding="same"), nn.BatchNorm2d(20),
        BinaryConv2d(20, 9, 2, padding="valid"),
    ),
    "reflected borders": lambda: nn.Sequential(
        BinaryConv2d(3, 20, 3, padding=1, padding_mode="reflect"), nn.BatchNorm2d(20),
        BinaryConv2d(20, 9, 3),
    ),
    "a constant less a value": lambda: Net(
        lambda s, x: s.b(torch.linspace(-1, 1, 20)[:, None, None] - s.n(s.a(x))),
        a=_plain(3, 20), n=nn.BatchNorm2d(20), b=_plain(20, 9),
    ),
    "signs, shapes and own code": lambda: Net(
        _own_code, a=_plain(3, 32), n=nn.BatchNorm2d(32), b=_plain(32, 32), c=_plain(64, 40),
        m=nn.BatchNorm2d(40), head=BinaryLinear(1440, 5),
    ),
    "an activation that is not monotone": lambda: nn.Sequential(
        _plain(3, 20), nn.BatchNorm2d(20), nn.GELU(), _plain(20, 9), nn.Tanh()
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_odd_structures(name):
    torch.manual_seed(11)
    model, x = trained(ODD[name]()), torch.randn(2, 3, 12, 12)
    frozen, expected = frozen_quietly(model), expected_of(model, x)
    torch.testing.assert_close(frozen(x), expected, rtol=1e-6, atol=1e-6)
    for step, _, result in call_by_call.steps(frozen, x):
        if isinstance(result, BitImages):
            BitTensor(result.words.flatten(0, 2), result.channels).validate()
        assert step.layer
