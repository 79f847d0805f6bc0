"""Checkpoints: round trips, and one clear error for each way they can be damaged or too large."""

import json
import threading
from dataclasses import replace

import pytest
import torch
from image_networks import trained
from torch import nn
from torch.nn import functional

from bitgnn import FileError
from bitgnn._checksummed import sealed
from bitgnn.convert import freeze
from bitgnn.inference import bounds, load, save
from bitgnn.inference.bounds import parameters_on_meta
from bitgnn.inference.own_code.calls import read_call
from bitgnn.nn import BinaryConv2d, BinaryLinear, GCNConv, GraphConv, LayerPrecision, SAGEConv

CHAIN = 40


@pytest.fixture
def saved(make_model, tmp_path):
    model = freeze(make_model("bin"))
    return model, save(model, tmp_path / "model")


def text(old, new):
    """A change of the first place where the program says something."""

    def change(description):
        assert old in description["program"]
        description["program"] = description["program"].replace(old, new, 1)

    return change


def line(number, value):
    """Another line of the program in the place of one, or none."""

    def change(description):
        lines = description["program"].split("\n")
        lines[number : number + 1 or None] = [] if value is None else [value]
        description["program"] = "\n".join(lines)

    return change


@pytest.mark.parametrize("precision", ["full", "bin"])
@pytest.mark.parametrize("num_layers", [1, 3])
def test_round_trip(make_model, graph, features, tmp_path, precision, num_layers):
    model = freeze(make_model(precision, num_layers))
    copy = load(save(model, tmp_path / "model"))
    assert copy.letters == model.letters
    assert torch.equal(copy(features, graph), model(features, graph))
    assert str(copy) == str(model)
    assert str(copy.report) == str(model.report)
    assert torch.equal(copy(copy.pack_features(features), graph), model(features, graph))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format=6), "format 6 is unknown"),
        (lambda d: d.update(format=1), "format 1 is unknown"),
        (lambda d: d.update(kind="gat"), "model kind 'gat' is unknown"),
        (lambda d: d.pop("format"), "format None is unknown"),
        (lambda d: d.pop("tensors"), "names no tensor file"),
        (lambda d: d["tensors"].update(file="../x"), "is not the name of"),
        (lambda d: d["tensors"].update(bytes="1"), "names no tensor file"),
        (text("floats[75]", "floats[76]"), r"call 0 \(pack\): it must write size 76"),
        (text("return %5", "return %1"), "must hold floats"),
        (text("return %5", "return %99"), "must hold floats"),
        (text("return %5", ""), "a program must return a register"),
        (line(5, None), "a program must return a register|must hold floats"),
        (line(5, "x"), "a line must be a call"),
        (text("%1: bits[75]", "%1: bits[74]"), "must write size 75"),
        (text("%1: bits[75]", "%1: floats[75]"), "must write floats"),
        (text("%1: bits[75]", "%1: words[75]"), "a register must be written as"),
        (text("%1: bits[75]", "%0: bits[75]"), "written twice"),
        (text("%1: bits[75]", "%1: bits[75], %6: scale[?]"), "cannot be written"),
        (text("%1: bits[75]", "%7: bits[75]"), "a program must return a register, of 0 to"),
        (text("bitgnn::bmm_bbb", "call"), "there is no own code"),
        (text("bitgnn::bmm_bbb", "os::system"), "unknown operator"),
        (text("bitgnn::bmm_bbb", "aten::resize_"), "unknown operator"),
        (text("bitgnn::bmm_bbb", "bitgnn::run_recording"), "unknown operator"),
        (text("bitgnn::bmm_bbb", "aten::relu"), "it takes"),
        (text("(%1, ", "(%5, "), "register 5 is read before it is written"),
        (text("(%1, ", "(%-1, "), "arguments of a call are wrong|unexpected"),
        (text("(%1, ", "(print('x'), "), "arguments of a call are wrong"),
        (text("(%1, ", "(x[0], "), "arguments of a call are wrong"),
        (text("(%1, ", "(lambda: 0, "), "arguments of a call are wrong"),
        (text("(%1, ", "(graph0.rowptr.data, "), "arguments of a call are wrong"),
        (text("(%1, ", "(None, "), r"call 1 \(bmm_bbb\)"),
        (text("call1_weight, 75", "call1_weight, 74"), "must have size 74"),
        (text("call1_weight, 75", "call1_weight, 1000"), "must have size 1000"),
        (text("call1_weight, 75", "call1_weight, '75'"), r"call 1 \(bmm_bbb\)"),
        (text("call1_weight, 75", f"call1_weight, {1 << 70}"), r"call 1 \(bmm_bbb\)"),
        (text("call1_weight, 75", "call1_weight, 75" + 9 * ", None"), "it takes"),
        (text("(%1, call1_weight", "(%1, nothing"), r"\['nothing'\] are missing"),
        (text("(%1, call1_weight", "(%1, %0"), "call 1|unexpected tensors"),
        (text("(%0, call0_threshold", "(%0, None"), "unexpected tensors"),
        (text("(%0, call0_threshold", "(%0, call2_threshold"), "unexpected tensors"),
        (text("graph0.rowptr", "graph1.rowptr"), "graph1.rowptr does not fit"),
        (text("graph0.rowptr", "graph0.values"), "graph0.values does not fit"),
        (text("graph0.rowptr", "graph0.indices"), "rowptr must be that of a graph"),
        (text("graph0.rowptr", "call0_threshold"), "rowptr must be that of a graph"),
        (text("graph0.row_scale", "call0_threshold"), "row must be that of a graph"),
        (lambda d: d["graphs"].clear(), "graph0.rowptr does not fit"),
        (lambda d: d["graphs"][0].update(colour="red"), "a graph must have the entries"),
        (lambda d: d["graphs"][0].update(kind="odd"), "unknown option"),
        (lambda d: d["graphs"][0].update(keeps_weights=True), "graph0.row_scale does not fit"),
        (lambda d: d["report"].pop("letters"), "a report must have"),
        (lambda d: d.update(program=None), "a program must be text"),
        (lambda d: d.pop("program"), "damaged checkpoint"),
    ],
)
def test_changed_description(saved, change, message):
    refused(saved[1], change, message)


def refused(folder, change, message):
    """A changed description is noticed, and does not pass with a checksum of its own either."""
    file = folder / "model.json"
    whole = file.read_text()
    description = json.loads(whole)
    change(description)
    file.write_text(json.dumps(description))
    with pytest.raises(FileError, match=r"model\.json: was altered, its checksum does not fit"):
        load(folder)
    file.write_text(json.dumps(sealed(description)))
    with pytest.raises(FileError, match=message) as caught:
        load(folder)
    assert str(file) in str(caught.value)
    file.write_text(whole)


def test_damaged_and_missing_files(saved, tmp_path):
    _, folder = saved
    file, weights = folder / "model.json", next(folder.glob("weights-*.safetensors"))
    text, data = file.read_text(), weights.read_bytes()
    for damaged, message in (
        (data[:-10], rf"safetensors: has {len(data) - 10} bytes"),
        (data[:-1] + bytes([data[-1] ^ 1]), r"safetensors: was altered"),
    ):
        weights.write_bytes(damaged)
        with pytest.raises(FileError, match=message):
            load(folder)
    weights.unlink()
    with pytest.raises(FileError, match="is missing"):
        load(folder)
    file.write_text(text[: len(text) // 2])
    with pytest.raises(FileError, match=r"model\.json: is not valid JSON"):
        load(folder)
    with pytest.raises(FileNotFoundError, match="no checkpoint here"):
        load(tmp_path / "nothing")
    with pytest.raises(TypeError, match="must be a frozen model, got dict"):
        save({}, tmp_path / "x")


def test_round_trip_of_every_kind_of_step(tmp_path, graph, features):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            norms = {"hidden_norm": "batch", "output_norm": "batch", "input_norm": "standardize"}
            self.first = SAGEConv(75, 40, precision=LayerPrecision("FBB", "BBB", **norms))
            self.second = GraphConv(40, 40, precision="BFF+FFB")
            self.third = GCNConv(40, 40, precision="FBF+FFF")
            self.norm = nn.LayerNorm(40)
            self.last = nn.Linear(160, 5)

        def forward(self, x, edge_index):
            a = self.first(x, edge_index)
            b = self.second(a, edge_index)
            c = self.norm(self.third(functional.elu(a + b), edge_index))
            d = functional.leaky_relu(c * 2 - 1).tanh() * c.sigmoid()
            return self.last(torch.cat([a, b, c, d], dim=1)).softmax(dim=1)

    torch.manual_seed(0)
    model = Net()
    model(features, graph)
    frozen = freeze(model.eval())
    torch.testing.assert_close(frozen(features, graph), model(features, graph))
    copy = load(save(frozen, tmp_path / "model"))
    assert torch.equal(copy(features, graph), frozen(features, graph))
    assert len({step.kind for step in frozen.program.calls}) > 12


class Doubling(nn.Module):
    """Joins its features with themselves a few times, as networks do."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(16, 8)

    def forward(self, x, edge_index):
        x = self.conv(x, edge_index)
        x = torch.cat([x, x.relu()], dim=-1)
        return torch.cat([x, x], dim=-1)


def test_joins_of_a_network_come_back_and_long_chains_do_not(tmp_path, monkeypatch):
    model, graph = Doubling(), (torch.randn(20, 16), torch.randint(0, 20, (2, 80)))
    model(*graph)
    frozen = freeze(model.eval(), check=False)
    save(frozen, tmp_path / "model")
    assert torch.equal(load(tmp_path / "model")(*graph), frozen(*graph))

    def chain(description):
        *lines, last = description["program"].split("\n")
        assert "aten::cat" in lines[-1]
        register, size = int(last[len("return %") :]), 32
        for _ in range(CHAIN):
            size *= 2
            joined = f"aten::cat([%{register}, %{register}], -1)  # cat"
            register += 1
            lines.append(f"%{register}: floats[{size}] = {joined}")
        description["program"] = "\n".join([*lines, f"return %{register}"])

    refused(tmp_path / "model", chain, r"call \d+ \(cat\): \d+ features are more than weights")
    monkeypatch.setattr(bounds, "COPIES", 0)
    with pytest.raises(ValueError, match=r"save: call \d+ .* features are more than weights allow"):
        save(frozen, tmp_path / "other")
    assert not (tmp_path / "other").exists()


BINARY = nn.Sequential(
    BinaryConv2d(5, 33, 3, padding=2, dilation=2, bias=False), nn.BatchNorm2d(33),
    nn.Hardtanh(), nn.MaxPool2d(2), nn.Flatten(), BinaryLinear(33 * 16, 4),
)  # fmt: skip
FLOAT = nn.Sequential(
    nn.Conv2d(5, 8, 3), nn.MaxPool2d(2, 1, 1), nn.AdaptiveAvgPool2d((2, None)),
    BinaryConv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8),
)  # fmt: skip


@pytest.mark.parametrize(
    ("layers", "changes"),
    [
        (
            BINARY,
            [
                ("conv_bbb", {"padding": [10**4] * 4}, "pixels larger"),
                ("conv_bbb", {"padding": [0, 0, 0, 300]}, "pixels larger"),
                ("conv_bbb", {"dilation": [9, 9], "padding": [10, 8 + 300, 0, 0]}, "pixels larger"),
                (
                    "conv_bbb",
                    {"dilation": [10**9] * 2, "padding": [10**9] * 4},
                    "numbers must be at most",
                ),
                ("conv_bbb", {"padding": [2**70] * 4}, "numbers must be at most"),
                ("conv_bbb", {"dilation": [0, 1]}, "numbers of windows"),
                ("conv_bbb", {"stride": [0, 1]}, "numbers of windows"),
            ],
        ),
        (
            FLOAT,
            [
                ("max_pool2d", {"kernel_size": [10**9] * 2, "padding": [10**8] * 2}, ""),
                ("adaptive_avg_pool", {"output": [10**4, None]}, "pixels larger"),
                ("conv2d", {"padding": [500, 0]}, "pixels larger"),
                ("conv2d", {"padding": [[1], 0]}, ""),
            ],
        ),
    ],
)
def test_images_do_not_grow_without_bound(tmp_path, layers, changes):
    torch.manual_seed(0)
    frozen, x = freeze(trained(layers), check=False), torch.randn(2, 5, 8, 8)
    save(frozen, tmp_path)
    assert torch.equal(load(tmp_path)(x), frozen(x))
    for kind, change, message in changes:

        def changed(description, kind=kind, change=change):
            call = next(call for call in frozen.program.calls if call.kind == kind)
            named = {**call.named, **change}
            new = replace(call, arguments=tuple(named.values()))
            text(str(call), str(new))(description)

        refused(tmp_path, changed, rf"call \d+ \({kind}.*\): .*{message}")


@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        ("torch.nn.Linear", {"in_features": 10**4, "out_features": 10**4}, "larger than its"),
        ("torch.nn.BatchNorm1d", {"num_features": 10**10, "affine": False}, "must be at most"),
        ("torch_geometric.nn.APPNP", {"K": 10**6, "alpha": 0.1}, "K must be at most"),
        ("torch_geometric.nn.ChebConv", {"in_channels": 4, "out_channels": 4, "K": 900}, "larger"),
    ],
)
def test_modules_are_no_larger_than_their_tensors(module, arguments, message):
    description = {
        "name": "a", "function": {"module": module, "arguments": arguments},
        "args": {"tuple": [{"input": 0}]}, "kwargs": {"dict": {}}, "size": None,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        read_call(description, {"weight": torch.zeros(4, 4)})


def test_other_threads_make_modules_with_memory():
    made = []
    with parameters_on_meta():
        thread = threading.Thread(target=lambda: made.append(nn.Linear(2, 2)))
        thread.start()
        thread.join()
        made.append(nn.Linear(2, 2))
    made.append(nn.Linear(2, 2))
    assert [module.weight.is_meta for module in made] == [False, True, False]
