"""Export and import of parameters: the same predictions to the bit, damage and strangers named."""

import json
import shutil

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import bitgnn
from bitgnn._checksummed import sealed
from bitgnn.bits import BitImages
from bitgnn.exchange import export_parameters, import_parameters
from bitgnn.models import IMAGE_NETWORKS, bincnn, mlp, vgg
from bitgnn.nn import BinaryConv2d, BinaryLinear

SIZES = {"mlp": {}, "vgg": {"image_size": 8}, "resnet14": {"image_size": 16}}
SIZES |= {"alexnet": {"image_size": 32}, "resnet50": {"image_size": 16}}


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


def _vgg() -> nn.Module:
    return vgg(width=0.1, image_size=8)


@torch.no_grad()
def _predictions(network: nn.Module, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(9)
    x = torch.randn(40, *network.image, generator=generator)
    return network.eval()(x.to(device))


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
    described = json.loads((tmp_path / "parameters.json").read_text())["layers"]
    assert [layer["kind"] for layer in described].count("values") == (inputs in ("rgb", "grey"))


@pytest.mark.parametrize("inputs", [1, 2, 31, 33, 800])
def test_means_of_weights_come_back_to_the_bit(inputs, tmp_path):
    def make() -> nn.Module:
        return nn.Sequential(BinaryLinear(inputs, 500))

    network = make()
    with torch.no_grad():
        network[0].weight.mul_(torch.logspace(-20, 10, 500).unsqueeze(1))
        network[0].weight[3] = 0
    export_parameters(network, tmp_path)
    other = import_parameters(make(), tmp_path)
    ours, theirs = other[0].pack_weight(), network[0].pack_weight()
    assert torch.equal(ours.words, theirs.words)
    assert torch.equal(ours.scale, theirs.scale)


def test_files_are_as_documented(tmp_path):
    network = _trained(_vgg())
    folder = export_parameters(network, tmp_path)
    text = json.loads((folder / "parameters.json").read_text())
    assert (text["format"], text["version"], text["network"]) == ("bitgnn.parameters", 2, "VGG")
    layers = {layer["name"]: layer for layer in text["layers"]}
    assert layers["features.0"]["kind"] == "convolution"
    assert layers["features.0"]["weight"] == [13, 3, 3, 3]
    assert layers["features.0"]["input_step"] == 2**-12
    assert layers["features.1"] == {"name": "features.1", "kind": "threshold", "channels": 13}
    assert [layer["kind"] for layer in text["layers"]].count("affine") == 1
    assert text["layers"][-1]["kind"] == "affine"
    tensors = safetensors.torch.load_file(folder / text["tensors"]["file"])
    assert len(tensors) == sum(2 if "channels" in layer else 1 for layer in text["layers"])
    # The words alone say the weights, the thresholds alone the signs.
    conv, norm = network.features[0], network.features[1]
    words = BitImages(tensors["features.0.words"], 3)
    assert torch.equal(words.to_float(), torch.where(conv.weight >= 0, 1.0, -1.0))
    v = torch.randn(50, 13, 4, 4) * 20
    threshold, turned = (tensors[f"features.1.{n}"].view(-1, 1, 1) for n in ("threshold", "turned"))
    with torch.no_grad():
        assert torch.equal((v >= threshold) != turned, norm(v) >= 0)
    assert turned.any()
    assert not turned.all()
    last, scale = network.classifier[-1], tensors["classifier.5.scale"]
    rows = torch.randn(9, 10)
    with torch.no_grad():
        expected = scale * rows + tensors["classifier.5.bias"]
        torch.testing.assert_close(last(rows), expected, rtol=1e-5, atol=1e-5)


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
    layers = json.loads((tmp_path / "parameters.json").read_text())["layers"]
    kinds = {layer["name"]: layer["kind"] for layer in layers}
    assert kinds == {
        "conv": "convolution",
        "both": "values",
        "signs": "threshold",
        "plain": "values",
        "left": "convolution",
        "right": "convolution",
        "out": "values",
    }
    other = import_parameters(_Branches(), tmp_path)
    cpu = torch.device("cpu")
    assert torch.equal(_predictions(other, cpu), _predictions(network, cpu))


def test_channels_that_never_turn(tmp_path):
    network = _trained(_vgg())
    with torch.no_grad():
        network.features[1].weight[:4] = 0
        network.features[1].bias[:2] = -1
        network.features[1].bias[2:4] = 1
    export_parameters(network, tmp_path)
    other = import_parameters(_vgg(), tmp_path)
    x = torch.randn(2, 13, 8, 8)
    with torch.no_grad():
        signs = other.eval().features[1](x) >= 0
        assert torch.equal(signs, network.features[1](x) >= 0)
    assert not signs[:, :2].any()
    assert signs[:, 2:4].all()


def test_other_networks_are_refused_by_layer(tmp_path):
    export_parameters(_vgg(), tmp_path)
    model = mlp(width=0.1)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=r"'classifier.0' where the parameters \(VGG\) have 'feat"):
        import_parameters(model, tmp_path)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    for options, message in (
        ({"width": 0.2}, r"layer 'features.0': weight is \[26, 3, 3, 3\] in the model and \[13, 3"),
        ({"input_step": 1.0}, r"layer 'features.0': input_step is 1.0 in the model and 0.000244"),
        ({"classes": 3}, r"layer 'classifier.4': weight is \[3, 102\]"),
    ):
        with pytest.raises(ValueError, match=message):
            import_parameters(vgg(**{"width": 0.1, "image_size": 8, **options}), tmp_path)
    longer = _vgg()
    longer.classifier.append(nn.Linear(10, 10))
    with pytest.raises(
        ValueError, match=r"layer 'classifier.5': kind is 'values' in the model and 'affine'"
    ):
        import_parameters(longer, tmp_path)
    shorter = nn.Sequential(BinaryLinear(4, 4), nn.BatchNorm1d(4), BinaryLinear(4, 4))
    export_parameters(shorter, tmp_path)
    with pytest.raises(ValueError, match="only the parameters have a layer '1'"):
        import_parameters(nn.Sequential(BinaryLinear(4, 4)), tmp_path)


def test_damage_is_named(tmp_path):
    good = export_parameters(_vgg(), tmp_path / "good")
    file = next(good.glob("*.safetensors")).name

    def damaged(change) -> object:
        folder = tmp_path / "bad"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(good, folder)
        change(folder)
        return folder

    def cut(name: str):
        return lambda f: (f / name).write_bytes((f / name).read_bytes()[:-7])

    def flip(folder) -> None:
        data = bytearray((folder / file).read_bytes())
        data[-3] ^= 16
        (folder / file).write_bytes(data)

    def edit(*replaced: str, seal: bool = True):
        def change(folder) -> None:
            text = (folder / "parameters.json").read_text()
            assert replaced[0] in text
            text = text.replace(*replaced)
            text = json.dumps(sealed(json.loads(text))) if seal else text
            (folder / "parameters.json").write_text(text)

        return change

    for change, message in (
        (cut("parameters.json"), r"parameters\.json: is not valid JSON"),
        (cut(file), r"safetensors: has \d+ bytes, \d+ were written"),
        (flip, "safetensors: was altered"),
        (lambda f: (f / file).unlink(), "names parameters-.*, which is missing"),
        (edit('"version": 2', '"version": 9'), "version 9 is unknown"),
        (edit("bitgnn.parameters", "other"), "does not describe bitgnn's parameters"),
        (edit('"channels": 13', '"channels": 14', seal=False), "parameters.json: was altered"),
        (edit(f'"file": "{file}"', '"file": "../x"'), "'../x' is not the name of"),
    ):
        with pytest.raises(bitgnn.FileError, match=message):
            import_parameters(_vgg(), damaged(change))
    with pytest.raises(FileNotFoundError, match=r"no parameters here \(parameters.json is miss"):
        import_parameters(_vgg(), tmp_path / "nowhere")


def test_tensors_that_do_not_fit_name_their_layer(tmp_path, monkeypatch):
    from bitgnn.exchange import parameters

    export_parameters(_vgg(), tmp_path)
    description, tensors = parameters.read_folder(
        tmp_path, "parameters.json", "parameters", lambda found, _: found
    )
    for key, value, message in (
        ("features.1.threshold", None, "layer 'features.1': the parameters lack its threshold"),
        ("features.2.words", torch.zeros(1), r"layer 'features.2': words must be int32 \[13, 3, 3"),
        ("features.1.threshold", torch.full((13,), torch.nan), "'features.1': threshold must not"),
        ("classifier.5.scale", torch.full((10,), torch.inf), "'classifier.5': scale must be fin"),
    ):
        changed = {**tensors, key: value}
        if value is None:
            del changed[key]
        read = (description, changed)
        monkeypatch.setattr(parameters, "read_folder", lambda *_, read=read: read)
        with pytest.raises(ValueError, match=message):
            import_parameters(_vgg(), tmp_path)


def test_what_cannot_be_exported_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"export_parameters: model must be a torch\.nn\.Module"):
        export_parameters("model", tmp_path)
    with pytest.raises(
        ValueError,
        match=r"export_parameters: model must be a network of images.* got Linear, which has none$",
    ):
        export_parameters(nn.Linear(3, 3), tmp_path)
    network = _vgg()
    with torch.no_grad():
        network.features[2].weight[0, 0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"layer 'features\.2': weight must be finite"):
        export_parameters(network, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_second_export_replaces_the_first(tmp_path):
    export_parameters(_trained(_vgg()), tmp_path)
    network = _trained(_vgg())
    export_parameters(network, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    other = import_parameters(_vgg(), tmp_path)
    cpu = torch.device("cpu")
    assert torch.equal(_predictions(other, cpu), _predictions(network, cpu))
