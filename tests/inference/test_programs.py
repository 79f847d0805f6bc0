"""Listings of the compiler: printed programs and the calls that run, as in `programs/`."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from bitgnn import FileError, freeze, load, save
from bitgnn._checksummed import sealed
from bitgnn.inference.program import Program
from bitgnn.models import GCN, GraphSAGE
from bitgnn.nn import BinaryConv2d, BinaryLinear, GATConv, GATv2Conv, GCNConv

HERE = Path(__file__).parent
N, K = 30, 40
EDGES = torch.tensor([[i % N for i in range(90)], [(7 * i + 1) % N for i in range(90)]])


class Ternary(nn.Module):
    """Ternary activations, a float norm and a skip of the user's own."""

    def __init__(self):
        super().__init__()
        self.first = GCNConv(K, 33, precision="FBF+TBF")
        self.norm = nn.LayerNorm(33)
        self.second = GCNConv(33, 5, precision="TBF+FBF")

    def forward(self, x, edge_index):
        h = self.norm(self.first(x, edge_index))
        return self.second(nn.functional.gelu(h), edge_index)


class Attention(nn.Module):
    """Two heads over the bits of a hidden layer."""

    def __init__(self, layer):
        super().__init__()
        self.first = GCNConv(K, 64, precision="bin")
        self.second = layer(64, 5, heads=2, concat=False, precision="bin")

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index), edge_index)


def cnn():
    return nn.Sequential(
        BinaryConv2d(3, 16, 3, bias=False, input_step=2.0**-6), nn.MaxPool2d(2),
        nn.BatchNorm2d(16), nn.Hardtanh(), BinaryConv2d(16, 32, 3, padding=1, bias=False),
        nn.MaxPool2d(2), nn.BatchNorm2d(32), nn.Hardtanh(), nn.Flatten(), BinaryLinear(128, 5),
    )  # fmt: skip


MODELS = {
    "gcn_bin": lambda: GCN(K, 64, 5, num_layers=2, precision="bin"),
    "gcn_full": lambda: GCN(K, 64, 5, num_layers=2, precision="full"),
    "sage_bin": lambda: GraphSAGE(K, 64, 5, num_layers=3, precision="bin"),
    "sage_full": lambda: GraphSAGE(K, 64, 5, num_layers=2, precision="full"),
    "gat_bin": lambda: Attention(GATConv),
    "gatv2_bin": lambda: Attention(GATv2Conv),
    "ternary": Ternary,
    "cnn": cnn,
}


def frozen_model(name):
    torch.manual_seed(0)
    model, x = MODELS[name](), torch.randn(N, K)
    given = (torch.randn(4, 3, 10, 10),) if name == "cnn" else (x, EDGES)
    with torch.no_grad():
        for _ in range(2):
            model(*given)
    return freeze(model.eval(), check=False), given


def listing(frozen):
    """The program, and behind a line the calls that rewrites make of it for a graph in CSR."""
    executable = frozen._from_floats.made[0]
    bound = [f"{' '.join(f'%{n}' for n in i.call.outputs)} = {i.call}" for i in executable.code]
    return "\n".join([str(frozen.program), "---", *bound]) + "\n"


@pytest.mark.parametrize("name", MODELS)
def test_programs_are_those_written_down(name):
    frozen, _ = frozen_model(name)
    assert listing(frozen) == (HERE / "programs" / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", MODELS)
def test_programs_are_read_as_they_are_printed(name, tmp_path):
    frozen, given = frozen_model(name)
    read = Program.read(str(frozen.program))
    assert read == frozen.program
    assert read.entry == frozen.program.entry
    loaded = load(save(frozen, tmp_path / "model"))
    assert loaded.program == frozen.program
    assert torch.equal(loaded(*given), frozen(*given))


@pytest.mark.parametrize("version", [3, 4])
def test_models_of_formats_before_give_their_scores(version, tmp_path):
    held = load_file(HERE / "format_4" / "expected.safetensors")
    folder = shutil.copytree(HERE / "format_4", tmp_path / "models")
    for file in folder.glob("*/model.json"):
        file.write_text(json.dumps(sealed({**json.loads(file.read_text()), "format": version})))
    graph, images = (load(folder / name) for name in ("graph", "images"))
    scores = graph(held["x"], held["edge_index"])
    # Float maps and softmax may round otherwise on another machine.
    torch.testing.assert_close(scores, held["scores"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(images(held["images"]), held["image_scores"], rtol=1e-5, atol=1e-5)


def _first(description, **entries):
    description["program"]["steps"][0].update(entries)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: _first(d, kind="pack_levels"), "freeze it again"),
        (lambda d: (d.update(format=3), _first(d, kind="pack_levels")), "freeze it again"),
        (lambda d: _first(d, kind="os.system"), "step 0 cannot be read.*unknown kind"),
        (lambda d: _first(d, inputs=[7]), "step 0 cannot be read"),
        (lambda d: _first(d, tensors=None), "step 0 cannot be read"),
        (lambda d: d["program"]["steps"].pop(), "damaged checkpoint"),
        (lambda d: d["program"].update(steps=3), "damaged checkpoint"),
    ],
)
def test_damaged_models_of_format_4(change, message, tmp_path):
    folder = shutil.copytree(HERE / "format_4" / "graph", tmp_path / "model")
    description = json.loads((folder / "model.json").read_text())
    change(description)
    (folder / "model.json").write_text(json.dumps(sealed(description)))
    with pytest.raises(FileError, match=message):
        load(folder)


def test_rewrites_of_a_layout_are_not_those_of_another():
    frozen, (x, edges) = frozen_model("sage_bin")
    graphs = [frozen.prepare_graph(edges, N, layout=layout) for layout in ("csr", "sliced")]
    found = [frozen(x, graph) for graph in graphs]
    assert torch.equal(*found)
    kinds = [
        {i.call.kind for i in frozen._start(x, frozen._adjacencies(graph, N))[0].code}
        for graph in graphs
    ]
    assert not any(kind.endswith("_sliced") for kind in kinds[0])
    assert any(kind.endswith("_sliced") for kind in kinds[1])


@pytest.mark.parametrize("text", [None, "", "x", "%0: floats[3]\nreturn %0\n", "return %0"])
def test_other_texts_are_no_programs(text):
    with pytest.raises(ValueError, match=r"program|register|a call"):
        Program.read(text)


if __name__ == "__main__":  # writes the listings anew
    for name in MODELS:
        (HERE / "programs" / f"{name}.txt").write_text(listing(frozen_model(name)[0]))
