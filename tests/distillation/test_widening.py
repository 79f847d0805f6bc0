"""Wider copies of models: what grows, what stays, and what is refused by name."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_geometric import nn as pyg
from toy_problems import CLASSES, FEATURES, Own, planted

from bitgnn.distillation import DistillError
from bitgnn.distillation.students import widened
from bitgnn.models import resnet, vgg
from bitgnn.nn import ChannelShortcut


class Joined(nn.Module):
    """Joins the results of all layers, PReLU and BatchNorm between."""

    def __init__(self):
        super().__init__()
        self.conv1 = pyg.SAGEConv(FEATURES, 8, aggr="max", bias=False)
        self.act = nn.PReLU(8)
        self.conv2 = pyg.SAGEConv(8, 8, project=True, normalize=True)
        self.norm = pyg.BatchNorm(8, momentum=0.3)
        self.out = nn.Linear(16, CLASSES, bias=False)

    def forward(self, x, edge_index):
        first = self.act(self.conv1(x, edge_index))
        second = self.norm(self.conv2(first, edge_index))
        return self.out(torch.cat((first, second), dim=1))


class Ends(nn.Module):
    def __init__(self):
        super().__init__()
        linear = nn.Linear(FEATURES, 8), nn.Linear(8, 3)
        self.layers = nn.Sequential(linear[0], nn.ReLU(), linear[1], nn.LayerNorm(3))

    def forward(self, x):
        return self.layers(x)


class Skip(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.mean = pyg.GCNConv(FEATURES, 6), pyg.LayerNorm(6)
        self.out, self.last = pyg.GATConv(FEATURES + 6, 4, heads=3), pyg.GCNConv(12, CLASSES)

    def forward(self, x, edge_index):
        hidden = self.mean(self.conv(x, edge_index)).relu()
        return self.last(self.out(torch.cat((x, hidden), 1), edge_index), edge_index)


def test_any_model_of_sized_layers_is_widened():
    data = planted()
    wide = widened(Joined(), data, 2)
    assert (wide.conv1.in_channels, wide.conv1.out_channels) == (FEATURES, 16)
    assert (wide.conv1.aggr, wide.conv1.lin_l.bias) == ("max", None)
    assert (wide.act.num_parameters, wide.norm.module.num_features) == (16, 16)
    assert (wide.conv2.project, wide.conv2.normalize) == (True, True)
    assert (wide.out.in_features, wide.out.bias) == (32, None)
    own = widened(Own(), data, 1.5)
    assert (own.conv1.in_channels, own.conv2.in_channels) == (FEATURES, 24)
    assert (own.norm2.normalized_shape, own.out.out_features) == ((24,), CLASSES)
    sizes = [tuple(p.shape) for p in widened(Ends(), data, 2).parameters()]
    assert sizes == [(16, FEATURES), (16,), (3, 16), (3,), (3,), (3,)]
    # What the input is joined with grows alone.
    wide = widened(Skip(), data, 2)
    assert (wide.out.in_channels, wide.out.out_channels) == (FEATURES + 12, 8)
    assert (wide.last.in_channels, wide.last.out_channels) == (24, CLASSES)


class Product(nn.Module):
    """A product of its own, behind layers."""

    def __init__(self, layers):
        super().__init__()
        sizes = (FEATURES, 8, 8)
        self.convs = nn.ModuleList(pyg.GCNConv(*sizes[i : i + 2]) for i in range(layers))
        self.weight = nn.Parameter(torch.rand(8, 8))

    def forward(self, x, edge_index):
        for conv in self.convs:
            x = conv(x, edge_index).relu() @ self.weight
        return x


IMAGES = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))


class Basic(nn.Module):
    """A residual block as torchvision's, whose shortcut has a convolution where sizes change."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, groups=2, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs, affine=False)
        self.downsample = None
        if inputs != outputs:
            conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


def residual():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.PReLU(8), Basic(8, 8, 1),
        Basic(8, 12, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 4),
    )  # fmt: skip


class Mobile(nn.Module):
    """Depthwise convolutions, weighed channels, joined maps, pixels that are flattened."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 5, 3, padding=1)
        self.depthwise = nn.Conv2d(5, 5, 3, padding=1, groups=5)
        self.norm = nn.GroupNorm(1, 5)
        self.squeeze, self.excite = nn.Conv2d(5, 2, 1), nn.Conv2d(2, 5, 1)
        self.other = nn.Conv2d(3, 4, 3, padding=1, bias=False, padding_mode="reflect")
        self.out = nn.Linear(9 * 16, 4)

    def forward(self, images):
        x = self.norm(self.depthwise(self.stem(images).relu()))
        x = x * self.excite(self.squeeze(x.mean((2, 3), keepdim=True)).relu()).sigmoid()
        x = torch.cat((x, self.other(images)), dim=1)
        return self.out(functional.avg_pool2d(x, 4).flatten(1))


@pytest.mark.parametrize("factor", [2, 1.5, 3])
@pytest.mark.parametrize("make", [residual, Mobile])
def test_hidden_channels_of_convolutional_networks_grow(make, factor):
    torch.manual_seed(0)
    model = make()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    wide = widened(model, IMAGES, factor)
    assert wide(IMAGES).shape == (4, 4)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    convolutions = ([m for m in net.modules() if isinstance(m, nn.Conv2d)] for net in (model, wide))
    for old, new in zip(*convolutions, strict=True):
        assert new.out_channels == round(factor * old.out_channels)
        assert new.in_channels == (3 if old.in_channels == 3 else round(factor * old.in_channels))
        is_depthwise = old.groups == old.in_channels
        assert new.groups == (new.in_channels if is_depthwise else old.groups)
        same = ("kernel_size", "stride", "padding", "padding_mode", "dilation")
        assert all(getattr(old, name) == getattr(new, name) for name in same)
        assert (old.bias is None) == (new.bias is None)


@pytest.mark.parametrize(
    ("make", "plain"),
    [
        (resnet, {"depth": 14, "width": 1 / 16}),
        (resnet, {"depth": 50, "width": 1 / 16, "image_size": 32, "classes": 10}),
        (vgg, {"width": 1 / 16}),
    ],
)
def test_networks_of_the_package_are_as_those_made_wide(make, plain):
    model = make(precision="fp32", **plain)
    wide = widened(model, torch.randn(3, 3, 32, 32), 2)
    wanted = make(precision="fp32", **{**plain, "width": 1 / 8})
    sizes = [{n: t.shape for n, t in one.state_dict().items()} for one in (wide, wanted)]
    assert sizes[0] == sizes[1]
    shortcuts = [m for m in wide.modules() if isinstance(m, ChannelShortcut)]
    expected = [m for m in wanted.modules() if isinstance(m, ChannelShortcut)]
    assert list(map(str, shortcuts)) == list(map(str, expected))


def test_sizes_are_rounded_and_a_layer_that_stands_twice_stays_one():
    wide = widened(Mobile(), IMAGES, 1.5)
    assert wide.stem.out_channels == 8  # 7.5 to the even number
    assert wide.out.in_features == (8 + 6) * 16
    layer = nn.Conv2d(4, 4, 3, padding=1)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 1), layer, nn.ReLU(), layer, nn.Flatten(), nn.Linear(1024, 4)
    )
    wide = widened(model, IMAGES, 2)
    assert wide[1] is wide[3]
    assert wide[1].in_channels == 8


class Fixed(nn.Module):
    """Takes its channels apart by numbers of its own."""

    def __init__(self):
        super().__init__()
        self.conv, self.first = nn.Conv2d(3, 8, 1), nn.Conv2d(4, 4, 1)
        self.out = nn.Linear(4, 4)

    def forward(self, x):
        first, second = self.conv(x).split([4, 4], dim=1)
        return self.out((self.first(first) + second).mean((2, 3)))


class Grouped(nn.Module):
    """Groups that channels times 1.5 cannot be divided among."""

    def __init__(self):
        super().__init__()
        self.first, self.grouped = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1, groups=2)
        self.third, self.out = nn.Conv2d(4, 10, 1, groups=2), nn.Linear(10, 4)

    def forward(self, x):
        return self.out(self.third(self.grouped(self.first(x))).mean((2, 3)))


@pytest.mark.parametrize(
    ("model", "factor", "message"),
    [
        (Product(1), 2, "Product has no hidden channels"),
        (Product(2), 2, "Product does not run"),
        (Fixed(), 2, r"Fixed does not run with 2 times .* at or behind conv \(Conv2d\)"),
        (Grouped(), 1.5, r"third \(Conv2d\) cannot be made anew with .*'out_channels': 15"),
    ],
)
def test_what_does_not_grow_names_its_layer(model, factor, message):
    with pytest.raises(DistillError, match=f"widen: {message}.* pass it as widen"):
        widened(model, planted() if isinstance(model, Product) else IMAGES, factor)
