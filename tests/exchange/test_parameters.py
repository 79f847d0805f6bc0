"""Export and import of parameters: the same predictions to the bit, damage and strangers named."""

import json

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import bitgnn
from bitgnn._checksummed import sealed
from bitgnn.bits import BitImages
from bitgnn.exchange import export_parameters, import_parameters, parameters
from bitgnn.models import IMAGE_NETWORKS, bincnn, mlp, vgg
from bitgnn.nn import BinaryConv2d, BinaryLinear

SIZES = {"mlp": {}, "vgg": {"image_size": 8}, "resnet14": {"image_size": 16}}
SIZES |= {"alexnet": {"image_size": 32}, "resnet50": {"image_size": 16}}
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def _trained(network: nn.Module) -> nn.Module:
    """Statistics of some batches, and gains and biases of both signs."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) and module.affine:
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    for _ in range(3):
        network.train()(torch.randn(8, *network.image))
    return network.eval()


def _vgg(**options) -> nn.Module:
    return vgg(**{"width": 0.1, "image_size": 8, **options})


@torch.no_grad()
def _predictions(network: nn.Module, device: torch.device = CPU) -> Tensor:
    generator = torch.Generator().manual_seed(9)
    x = torch.randn(40, *network.image, generator=generator)
    return network.eval()(x.to(device))


def _described(folder) -> dict:
    return json.loads((folder / "parameters.json").read_text())


@pytest.mark.parametrize("name", SIZES)
def test_predictions_are_the_same_to_the_bit(name, tmp_path, device):
    make = IMAGE_NETWORKS[name]
    network = _trained(make(width=0.1, classes=7, **SIZES[name])).to(device)
    before = _predictions(network, device)
    state = {key: value.clone() for key, value in network.state_dict().items()}
    export_parameters(network, tmp_path / "net")
    assert all(torch.equal(state[key], value) for key, value in network.state_dict().items())
    torch.manual_seed(1)
    other = make(width=0.1, classes=7, **SIZES[name]).to(device)
    assert not torch.equal(_predictions(other, device), before)
    assert import_parameters(other, tmp_path / "net") is other
    after = _predictions(other, device)
    if device.type == "cpu":
        assert torch.equal(after, before)
        # A network of +-1 and thresholds freezes to the same.
        frozen = bitgnn.freeze(other)
        x = torch.randn(6, *other.image)
        with torch.no_grad():
            torch.testing.assert_close(frozen(x), network(x), rtol=1e-5, atol=1e-5)
    else:  # scores come from another formula there
        torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-5)
        assert torch.equal(after.argmax(1), before.argmax(1))


@pytest.mark.parametrize("inputs", ["none", "rgb", "grey", "lbp"])
@pytest.mark.parametrize("strict", [False, True])
def test_scales_biases_and_values_come_back(inputs, strict, tmp_path, device):
    def make() -> nn.Module:
        return bincnn(inputs=inputs, strict_sign=strict, width=0.3, image_size=8).to(device)

    network = make()
    if inputs in ("rgb", "grey"):
        nn.init.normal_(network.features[0].threshold)
    export_parameters(network, tmp_path)
    other = import_parameters(make(), tmp_path)
    assert torch.equal(_predictions(other, device), _predictions(network, device))
    kinds = [layer["kind"] for layer in _described(tmp_path)["layers"]]
    assert kinds.count("values") == (inputs in ("rgb", "grey"))


def test_pixels_outside_belong_to_the_structure(tmp_path):
    network = bincnn(width=0.3, image_size=8, padding_value=-1)
    export_parameters(network, tmp_path)
    numbers = [layer.get("padding_value") for layer in _described(tmp_path)["layers"]]
    assert numbers.count(-1) == 2
    other = import_parameters(bincnn(width=0.3, image_size=8, padding_value=-1), tmp_path)
    assert torch.equal(_predictions(other, CPU), _predictions(network, CPU))
    with pytest.raises(ValueError, match=r"features\.1"):
        import_parameters(bincnn(width=0.3, image_size=8), tmp_path)


@pytest.mark.parametrize("inputs", [1, 2, 31, 33, 800])
def test_means_of_weights_come_back_to_the_bit(inputs, tmp_path):
    network = nn.Sequential(BinaryLinear(inputs, 500))
    with torch.no_grad():
        network[0].weight.mul_(torch.logspace(-20, 10, 500).unsqueeze(1))
        network[0].weight[3] = 0
    export_parameters(network, tmp_path)
    other = import_parameters(nn.Sequential(BinaryLinear(inputs, 500)), tmp_path)
    ours, theirs = other[0].pack_weight(), network[0].pack_weight()
    assert torch.equal(ours.words, theirs.words)
    assert torch.equal(ours.scale, theirs.scale)


def test_files_are_as_documented(tmp_path):
    export_parameters(_trained(_vgg()), tmp_path)
    network = _trained(_vgg())
    folder = export_parameters(network, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2  # the second export replaced the first
    text = _described(folder)
    assert (text["format"], text["version"], text["network"]) == ("bitgnn.parameters", 2, "VGG")
    layers = {layer["name"]: layer for layer in text["layers"]}
    first = {"kind": "convolution", "weight": [13, 3, 3, 3], "input_step": 2**-12}
    assert first.items() <= layers["features.0"].items()
    assert layers["features.1"] == {"name": "features.1", "kind": "threshold", "channels": 13}
    assert [n for n, layer in layers.items() if layer["kind"] == "affine"] == ["classifier.5"]
    tensors = safetensors.torch.load_file(folder / text["tensors"]["file"])
    assert len(tensors) == sum(2 if "channels" in layer else 1 for layer in text["layers"])
    # The words alone say the weights, the thresholds alone the signs.
    conv, norm = network.features[0], network.features[1]
    words = BitImages(tensors["features.0.words"], 3)
    assert torch.equal(words.to_float(), torch.where(conv.weight >= 0, 1.0, -1.0))
    v = torch.randn(50, 13, 4, 4) * 20
    threshold, turned = (tensors[f"features.1.{n}"].view(-1, 1, 1) for n in ("threshold", "turned"))
    assert 0 < int(turned.sum()) < 13
    scale, bias = (tensors[f"classifier.5.{n}"] for n in ("scale", "bias"))
    rows = torch.randn(9, 10)
    with torch.no_grad():
        assert torch.equal((v >= threshold) != turned, norm(v) >= 0)
        last = network.classifier[-1](rows)
        torch.testing.assert_close(last, scale * rows + bias, rtol=1e-5, atol=1e-5)


class _Branches(nn.Module):
    """A norm that signs and floats are taken of, one of signs alone, one without parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = BinaryConv2d(3, 8, 3, padding=1, input_step=2**-8)
        self.both, self.signs = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.plain = nn.BatchNorm2d(8, affine=False)
        self.left, self.right = BinaryConv2d(8, 8, 1), BinaryConv2d(8, 8, 1, groups=2)
        self.out = nn.Conv2d(8, 2, 1)
        self.image = (3, 6, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.both(self.conv(x))
        y = self.left(self.signs(x)) + self.right(self.plain(x))
        return self.out(torch.relu(y) + x).flatten(1)


def test_norms_of_floats_stay_as_they_are(tmp_path):
    network = _trained(_Branches())
    export_parameters(network, tmp_path)
    kinds = {layer["name"]: layer["kind"] for layer in _described(tmp_path)["layers"]}
    assert kinds == {
        **dict.fromkeys(("conv", "left", "right"), "convolution"),
        **dict.fromkeys(("both", "plain", "out"), "values"),
        "signs": "threshold",
    }
    other = import_parameters(_Branches(), tmp_path)
    assert torch.equal(_predictions(other), _predictions(network))


def test_channels_that_never_turn(tmp_path):
    network = _trained(_vgg())
    with torch.no_grad():
        network.features[1].weight[:4] = 0
        network.features[1].bias[:4] = torch.tensor([-1.0, -1.0, 1.0, 1.0])
    export_parameters(network, tmp_path)
    other = import_parameters(_vgg(), tmp_path)
    x = torch.randn(2, 13, 8, 8)
    with torch.no_grad():
        signs = other.eval().features[1](x) >= 0
        assert torch.equal(signs, network.features[1](x) >= 0)
    assert not signs[:, :2].any()
    assert signs[:, 2:4].all()


def _longer() -> nn.Module:
    longer = _vgg()
    longer.classifier.append(nn.Linear(10, 10))
    return longer


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mlp(width=0.1), r"'classifier.0' where the parameters \(VGG\) have 'feat"),
        (
            lambda: _vgg(width=0.2),
            r"layer 'features.0': weight is \[26, 3, 3, 3\] in the model and \[13, 3",
        ),
        (
            lambda: _vgg(input_step=1.0),
            r"layer 'features.0': input_step is 1.0 in the model and 0.000244",
        ),
        (lambda: _vgg(classes=3), r"layer 'classifier.4': weight is \[3, 102\]"),
        (_longer, "layer 'classifier.5': kind is 'values' in the model and 'affine'"),
    ],
)
def test_other_networks_are_refused_by_layer(make, message, tmp_path):
    export_parameters(_vgg(), tmp_path)
    model = make()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        import_parameters(model, tmp_path)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_layers_too_many_are_named(tmp_path):
    longer = nn.Sequential(BinaryLinear(4, 4), nn.BatchNorm1d(4), BinaryLinear(4, 4))
    export_parameters(longer, tmp_path)
    with pytest.raises(ValueError, match="only the parameters have a layer '1'"):
        import_parameters(nn.Sequential(BinaryLinear(4, 4)), tmp_path)


def _edit(old: str, new: str, seal: bool = True):
    def change(folder, file) -> None:
        text = (folder / "parameters.json").read_text()
        assert old in text
        text = text.replace(old, new.format(file=file))
        text = json.dumps(sealed(json.loads(text))) if seal else text
        (folder / "parameters.json").write_text(text)

    return change


def _bytes(name: str | None, change):
    def changed(folder, file) -> None:
        path = folder / (name or file)
        path.write_bytes(change(path.read_bytes()))

    return changed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_bytes("parameters.json", lambda b: b[:-7]), r"parameters\.json: is not valid JSON"),
        (_bytes(None, lambda b: b[:-7]), r"safetensors: has \d+ bytes, \d+ were written"),
        (_bytes(None, lambda b: b[:-3] + bytes([b[-3] ^ 16]) + b[-2:]), "safetensors: was altered"),
        (lambda folder, file: (folder / file).unlink(), "names parameters-.*, which is missing"),
        (_edit('"version": 2', '"version": 9'), "version 9 is unknown"),
        (_edit("bitgnn.parameters", "other"), "does not describe bitgnn's parameters"),
        (_edit('"network": "VGG"', '"network": 3'), "names no network or no layers"),
        (_edit('"channels": 13', '"channels": 14', seal=False), "parameters.json: was altered"),
        (_edit('"file": "parameters-', '"file": "../x'), r"'\.\./x.*' is not the name of"),
    ],
)
def test_damage_is_named(change, message, tmp_path):
    export_parameters(_vgg(), tmp_path)
    change(tmp_path, next(tmp_path.glob("*.safetensors")).name)
    with pytest.raises(bitgnn.FileError, match=message):
        import_parameters(_vgg(), tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("features.1.threshold", None, "layer 'features.1': the parameters lack its threshold"),
        ("features.2.words", torch.zeros(1), r"layer 'features.2': words must be int32 \[13, 3, 3"),
        ("features.1.threshold", torch.full((13,), torch.nan), "'features.1': threshold must not"),
        ("classifier.5.scale", torch.full((10,), torch.inf), "'classifier.5': scale must be fin"),
    ],
)
def test_tensors_that_do_not_fit_name_their_layer(key, value, message, tmp_path, monkeypatch):
    read = parameters.read_folder

    def changed(*arguments):
        description, tensors = read(*arguments)
        changed = {**tensors, key: value}
        return description, {name: t for name, t in changed.items() if t is not None}

    export_parameters(_vgg(), tmp_path)
    monkeypatch.setattr(parameters, "read_folder", changed)
    with pytest.raises(ValueError, match=message):
        import_parameters(_vgg(), tmp_path)


def test_what_cannot_be_exported_or_found_is_named(tmp_path):
    broken = _vgg()
    with torch.no_grad():
        broken.features[2].weight[0, 0, 0, 0] = torch.nan
    none = "model must be a network of images.* got Linear, which has none$"
    for model, error, message in (
        ("model", TypeError, r"model must be a torch\.nn\.Module"),
        (nn.Linear(3, 3), ValueError, none),
        (broken, ValueError, r"layer 'features\.2': weight must be finite"),
    ):
        with pytest.raises(error, match=f"export_parameters: {message}"):
            export_parameters(model, tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError, match=r"no parameters here \(parameters.json is miss"):
        import_parameters(_vgg(), tmp_path / "nowhere")
