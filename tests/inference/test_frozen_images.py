"""Frozen networks of images: input, errors, checkpoints and devices."""

import copy
import json

import pytest
import torch
from image_networks import trained
from torch import nn

import bitgnn
from bitgnn._checksummed import sealed
from bitgnn.bits import BitImages, BitTensor
from bitgnn.inference import call_by_call
from bitgnn.inference.costs import image_call_cost
from bitgnn.models import IMAGE_NETWORKS
from bitgnn.nn import BinaryConv2d, BinaryLinear

SMALL = {
    "mlp": {}, "vgg": {"image_size": 16}, "resnet14": {"image_size": 16},
    "resnet18": {"image_size": 64}, "resnet50": {"image_size": 32}, "alexnet": {"image_size": 64},
}  # fmt: skip


def _small(name, ties=True):
    torch.manual_seed(0)
    model = trained(IMAGE_NETWORKS[name](width=0.25, **SMALL[name]), ties)
    return model, torch.randn(3, *model.image)


def _cnn(**options):
    torch.manual_seed(0)
    return trained(
        nn.Sequential(
            BinaryConv2d(5, 33, 3, bias=False, **options), nn.BatchNorm2d(33), nn.Hardtanh(),
            nn.MaxPool2d(2), nn.Flatten(), BinaryLinear(33 * 9, 4),
        )
    )  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_the_networks_of_the_papers_are_bits_throughout(name):
    model, x = _small(name)
    frozen = bitgnn.freeze(model, fold=False)
    with torch.no_grad():
        assert torch.equal(frozen(x), model(x))
    assert not frozen.report.floats
    float_kinds = {"float_conv", "linear", "add", "conv_bbf", "sums_to_floats", "call"}
    assert not float_kinds & {step.kind for step in frozen.program.calls}
    folded = bitgnn.freeze(model)
    assert folded.program.calls[-1].kind == "bmm_bbf"
    torch.testing.assert_close(folded(x), frozen(x), rtol=1e-5, atol=1e-5)


def test_images_of_any_number_size_and_format():
    model = nn.Sequential(
        BinaryConv2d(3, 40, 3, padding=1, bias=False), nn.BatchNorm2d(40),
        BinaryConv2d(40, 6, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Softmax(1),
    )  # fmt: skip
    frozen = bitgnn.freeze(trained(model))
    for shape in ((0, 3, 9, 9), (1, 3, 3, 3), (4, 3, 17, 5)):
        x = torch.randn(shape)
        with torch.no_grad():
            expected = model(x) if shape[0] else torch.empty(0, 6)
        for image in (x, x.contiguous(memory_format=torch.channels_last), x.mT.contiguous().mT):
            torch.testing.assert_close(frozen(image), expected)
    assert frozen(torch.randint(256, (2, 3, 8, 8), dtype=torch.uint8)).shape == (2, 6)
    classes = bitgnn.freeze(model, output="classes")
    assert classes(torch.randn(0, 3, 9, 9)).dtype == torch.int64


X = torch.randn(2, 5, 8, 8)
BAD_INPUTS = [
    (ValueError, r"x must be \[N, 5, H, W\], got \[2, 6, 8, 8\]", torch.randn(2, 6, 8, 8)),
    (ValueError, r"x must be \[N, 5, H, W\], got \[5, 8, 8\]", X[0]),
    (TypeError, r"got torch\.int64", X.long()),
    (TypeError, r"got torch\.float32, torch\.sparse_coo", X.to_sparse()),
    (TypeError, "got list", [1.0]),
    (ValueError, r"layer '0': .*kernel", X[:, :, :2]),
    (ValueError, r"layer '5': .*297 features, gets 528", torch.randn(2, 5, 10, 11)),
    (
        ValueError,
        r"packed x must be BitImages of 5 channels, got BitT",
        BitTensor.from_float(X[0, 0]),
    ),
    (
        ValueError,
        r"packed x must be BitImages of 5 channels, .* of 4",
        BitImages.from_float(X[:, 1:]),
    ),
]


def test_bad_input_is_named():
    frozen = bitgnn.freeze(_cnn())
    for error, message, x in BAD_INPUTS:
        with pytest.raises(error, match=message):
            frozen(x)
    with pytest.raises(ValueError, match="adjacency must be None"):
        frozen(X, torch.zeros(2, 3))
    with pytest.raises(ValueError, match="x must be finite"):
        frozen.pack_features(torch.full((1, 5, 8, 8), float("nan")), check_finite=True)


def test_what_cannot_be_frozen_is_named():
    wide = nn.Sequential(BinaryConv2d(3, 8, 3), BinaryConv2d(9, 8, 3))
    odd = nn.Sequential(BinaryConv2d(3, 32, 3), nn.Flatten(), BinaryLinear(100, 8))
    for message, model, options in (
        ("layer '1' takes 9 channels, gets 8", wide, {}),
        (r"layer '2' takes 100 features, .* 32 channels", odd, {}),
        ("has no binary layer", nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), {}),
        ("plan must be None", _cnn(), {"plan": "bin"}),
        ("must be 'floats', got 'packed'", _cnn(input_step=0.5), {"features": "packed"}),
    ):
        with pytest.raises(ValueError, match=message):
            bitgnn.freeze(model, **options)
    packed = bitgnn.freeze(_cnn(), features="packed")
    with pytest.raises(ValueError, match="must be the result of pack_features"):
        packed(X)
    assert packed(packed.pack_features(X)).shape == (2, 4)


@pytest.mark.parametrize("name", ["vgg", "resnet14", "mlp"])
def test_a_checkpoint_gives_the_same_model(name, tmp_path):
    model, x = _small(name)
    frozen = bitgnn.freeze(model)
    loaded = bitgnn.load(bitgnn.save(frozen, tmp_path / name))
    assert loaded.kind == "images"
    assert torch.equal(loaded(x), frozen(x))
    assert loaded.report == frozen.report
    assert not list((tmp_path / name).glob("*.pkl"))


def test_a_damaged_checkpoint_is_refused(tmp_path):
    folder = bitgnn.save(bitgnn.freeze(_cnn()), tmp_path / "cnn")
    description = json.loads((folder / "model.json").read_text())
    for change in (
        lambda d: d.update(takes="everything"),
        lambda d: d.update(program=d["program"].replace("5, [1, 1]", "5, [0, 1]")),
        lambda d: d.update(program=d["program"].replace("5, [1, 1]", "64, [1, 1]")),
        lambda d: d.update(program=d["program"].replace("bits[575]", "bits[4]")),
        lambda d: d.update(program=d["program"].replace("(%1, call1_weight", "(%1, None")),
    ):
        changed = copy.deepcopy(description)
        change(changed)
        (folder / "model.json").write_text(json.dumps(sealed(changed)))
        with pytest.raises(ValueError, match="damaged checkpoint"):
            bitgnn.load(folder)


def test_a_frozen_network_compiles_and_exports():
    model, x = _small("resnet14")
    frozen = bitgnn.freeze(model)
    compiled = torch.compile(frozen, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x), frozen(x))
    exported = torch.export.export(frozen, (x,)).module()
    assert torch.equal(exported(x), frozen(x))


def test_summary_counts_bits_bytes_and_operations():
    model, x = _small("resnet14")
    frozen = bitgnn.freeze(model)
    table = bitgnn.summary(frozen, x, repeats=1)
    first, second = table.layers[:2]
    assert (first.activation_bits, first.weight_bits, first.output_bits) == (16, 1, 1)
    assert (second.activation_bits, second.one_bit_share) == (1, 1.0)
    assert first.float_bytes == 4 * model.features[0].weight.numel()
    macs = 8 * 8 * 32 * 27  # of the first layer, whose products are not of bits
    assert table.one_bit_share is not None
    assert 0.9 < table.one_bit_share < 1
    assert bitgnn.summary(model).one_bit_share is None
    cost = image_call_cost(frozen, frozen.program.calls[1], call_by_call.steps(frozen, x)[1][2])
    assert (cost.wide, cost.bits) == (2 * 3 * macs, 0)


@pytest.mark.cuda
@pytest.mark.parametrize("name", SMALL)
def test_networks_on_a_gpu_give_the_same_scores(name):
    model, x = _small(name, ties=False)
    frozen = bitgnn.freeze(model)
    expected = frozen(x)
    on_gpu = copy.deepcopy(frozen).to("cuda")
    there = bitgnn.freeze(copy.deepcopy(model).to("cuda"))
    for form in (x, x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x):
        image = form.to("cuda")
        torch.testing.assert_close(on_gpu(image).cpu(), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(there(image).cpu(), expected, rtol=1e-5, atol=1e-5)
        half = image.half()
        for given, near in ((image, frozen(x)), (half, frozen(x.half()))):
            run = bitgnn.capture(on_gpu, given)
            assert run.form == "cuda_graph"
            for _ in range(2):
                assert torch.equal(run(), on_gpu(given))
            torch.testing.assert_close(run().cpu(), near, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        trained_there = copy.deepcopy(model).to("cuda")(x.to("cuda")).cpu()
    assert torch.equal(trained_there.argmax(1), expected.argmax(1))
