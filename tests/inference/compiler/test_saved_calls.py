"""Checkpoints hold float steps by names from lists: PyG's norms, pools, aggregations; functions."""

import json

import pytest
import torch
import torch_geometric.nn as pyg
from chains import HIDDEN, Around, N, agree, shake
from torch import nn
from torch.nn import functional
from torch_geometric.nn import norm

from bitgnn._checksummed import sealed
from bitgnn.convert import freeze
from bitgnn.inference import FrozenModel, load, save
from bitgnn.inference.own_code.calls import FloatCall, Input, describe_call, read_call
from bitgnn.inference.own_code.known import Method
from bitgnn.nn import GraphConv, SAGEConv

BATCH = torch.arange(N) // 31

NORMS = {
    "batch": lambda: norm.BatchNorm(HIDDEN),
    "batch without statistics": lambda: norm.BatchNorm(HIDDEN, track_running_stats=False),
    "layer": lambda: norm.LayerNorm(HIDDEN),
    "layer of nodes": lambda: norm.LayerNorm(HIDDEN, mode="node", affine=False, eps=0.1),
    "graph": lambda: norm.GraphNorm(HIDDEN, eps=0.01),
    "instance": lambda: norm.InstanceNorm(HIDDEN),
    "tracked instance": lambda: norm.InstanceNorm(HIDDEN, affine=True, track_running_stats=True),
    "pair": lambda: norm.PairNorm(2.0, scale_individually=True),
    "groups": lambda: norm.DiffGroupNorm(HIDDEN, 3, lamda=0.2),
    "mean": lambda: norm.MeanSubtractionNorm(),
    "size": lambda: norm.GraphSizeNorm(),
    "torch's groups": lambda: nn.GroupNorm(HIDDEN, HIDDEN),
    "root mean square": lambda: nn.RMSNorm(HIDDEN),
    "softplus": lambda: nn.Softplus(beta=2.0),
    "prelu": lambda: nn.PReLU(HIDDEN),
    "hardswish": lambda: nn.Hardswish(),
    "celu": lambda: nn.CELU(0.7),
    "aggregated": lambda: SAGEConv(HIDDEN, HIDDEN, aggr="max", precision="FBB+BBF"),
    "messages": lambda: pyg.SAGEConv(HIDDEN, HIDDEN, aggr="max"),
    "attention": lambda: pyg.GATConv(HIDDEN, HIDDEN, heads=2, concat=False),
    "attention without bias": lambda: pyg.GATv2Conv(HIDDEN, HIDDEN, bias=False),
    "least": lambda: GraphConv(HIDDEN, HIDDEN, aggr="min", precision="FBF+FBF", bias=False),
    "least of named": lambda: GraphConv(HIDDEN, HIDDEN, aggr="min", precision="full", bias=False),
    "largest of named": lambda: SAGEConv(HIDDEN, HIDDEN, aggr="max", precision="bin"),
}
WITH_BATCH = ("layer", "graph", "instance", "tracked instance", "pair", "mean", "size")


@pytest.mark.parametrize(
    ("name", "with_batch"), [*((n, False) for n in NORMS), *((n, True) for n in WITH_BATCH)]
)
@pytest.mark.filterwarnings("ignore")
def test_modules(name, with_batch, x, edges, tmp_path):
    module = NORMS[name]()
    takes = "graph" if isinstance(module, pyg.MessagePassing) else "batch" * with_batch
    inputs = (x, edges, BATCH) if with_batch else (x, edges)
    model = Around(module, takes).eval()
    if name != "batch without statistics":
        shake(model, *inputs)
    frozen = freeze(model, check=False)
    assert isinstance(frozen, FrozenModel)
    agree(frozen(*inputs), model(*inputs))
    read = load(save(frozen, tmp_path))
    assert read(*inputs).equal(frozen(*inputs))
    assert str(read.report) == str(frozen.report)
    again = load(save(read, tmp_path / "again"))
    assert again(*inputs).equal(frozen(*inputs))
    assert not any(parameter.requires_grad for parameter in read.parameters())


class Functions(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(N, 1))

    def forward(self, x):
        x = torch.maximum(functional.softplus(x, beta=2), x.abs().sqrt()) * self.table
        x = x - x.mean(dim=0, keepdim=True)
        x = torch.where(x > 0, x.exp(), x.pow(2))
        x = functional.pad(x[:, 1:], (0, 1)).to(torch.float32) / x.shape[0]
        return functional.logsigmoid(x)


class Repeated(Functions):
    def forward(self, x):
        return torch.addcmul(x, x, self.table.cos())


def test_functions(x, edges, tmp_path):
    model = Around(Functions()).eval()
    with pytest.warns(UserWarning, match="softplus: it runs as its own code"):
        frozen = freeze(model)
    agree(frozen(x, edges), model(x, edges))
    assert load(save(frozen, tmp_path))(x, edges).equal(frozen(x, edges))
    assert "save() cannot" not in str(frozen.report)


def test_a_call_reads_a_value_once_and_constants_are_no_calls(x, edges):
    model = Around(Repeated()).eval()
    with pytest.warns(UserWarning, match="addcmul: it runs as its own code"):
        frozen = freeze(model)
    (step,) = (step for step in frozen.program.calls if step.kind == "call")
    assert len(step.inputs) == 1
    assert frozen.report.floats.keys() == {"addcmul"}
    agree(frozen(x, edges), model(x, edges))


def scaled(x):
    return x * 2 if x.sum() > 0 else x


torch.fx.wrap("scaled")


class Wrapped(nn.Module):
    def forward(self, x):
        return scaled(x)


@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_saved_is_said(x, edges, tmp_path):
    model = Around(Wrapped()).eval()
    frozen = freeze(model)
    agree(frozen(x, edges), model(x, edges))
    with pytest.raises(ValueError, match=r"save: .* checkpoint cannot.*'scaled' is a function of"):
        save(frozen, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_module_that_no_file_tells_comes_from_the_model(x, edges, tmp_path):
    def make():
        moved = norm.PairNorm()
        moved.scale = torch.full((1,), 3.0)
        return Around(moved).eval()

    model = make()
    with pytest.warns(UserWarning, match=r"load\(\) takes it from the model, scale of PairNorm is"):
        frozen = freeze(model)
    agree(frozen(x, edges), model(x, edges))
    save(frozen, tmp_path)
    with pytest.raises(ValueError, match=r"load: model must be a model of the architecture"):
        load(tmp_path)
    assert load(tmp_path, make())(x, edges).equal(frozen(x, edges))
    with pytest.raises(ValueError, match="damaged checkpoint or another model"):
        load(tmp_path, nn.Linear(2, 3))


def by_constructor(call, module="torch_geometric.nn.norm.GraphNorm", **arguments):
    """The norm as earlier files tell of it: its class and the arguments of its constructor."""
    arguments = {"in_channels": HIDDEN, "eps": 1e-5, **arguments}
    call.update(function={"module": module, "arguments": arguments})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: by_constructor(c, "os.system"), "module 'os.system' is unknown"),
        (lambda c: c.update(function={"function": "os.system"}), "'os.system' is unknown"),
        (lambda c: c.update(function={"method": "__reduce__"}), "'__reduce__' is unknown"),
        (lambda c: c.update(function={"function": "builtins.getattr"}), "the attribute"),
        (lambda c: c.update(function=3), "must be named, got 3"),
        (lambda c: by_constructor(c, extra=1), "unexpected keyword"),
        (lambda c: c.update(args={"tuple": [{"code": "x"}]}), "an argument of a call is wrong"),
        (lambda c: c.update(args={"tuple": [[1]]}), "an argument of a call is wrong"),
        (lambda c: c.update(args={"list": []}), "the arguments of a call are wrong"),
        (lambda c: c.update(more=1), "a call must have the entries"),
        (lambda c: by_constructor(c, in_channels=3), "size mismatch"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_altered_files_are_refused(change, message, x, edges, tmp_path):
    frozen = freeze(Around(norm.GraphNorm(HIDDEN), "").eval())
    file = save(frozen, tmp_path) / "model.json"
    description = json.loads(file.read_text())
    change(description["calls"][0])
    file.write_text(json.dumps(sealed(description)))
    with pytest.raises(ValueError, match=message):
        load(tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_modules_of_earlier_files_are_read(x, edges, tmp_path):
    frozen = freeze(Around(norm.GraphNorm(HIDDEN), "").eval())
    file = save(frozen, tmp_path) / "model.json"
    description = json.loads(file.read_text())
    by_constructor(description["calls"][0])
    file.write_text(json.dumps(sealed(description)))
    assert load(tmp_path)(x, edges).equal(frozen(x, edges))


def test_arguments_of_calls_come_back():
    constant = torch.arange(4.0)
    for call in (
        FloatCall("a", torch.clamp, (Input(0),), {"min": 0.5, "max": None}, 3),
        FloatCall("b", Method("to"), (Input(0), torch.float64), {}, None),
        FloatCall("c", torch.cat, ([Input(0), (Input(0), constant)[1]],), {"dim": 0}, None),
    ):
        text = json.loads(json.dumps(describe_call(call)))
        read = read_call(text, call.state_dict())
        given = [torch.randn(4)]
        assert read(given, None).equal(call(given, None))
    part = FloatCall("d", torch.add, (Input(0), Input("shift")), {}, None)
    assert read_call(describe_call(part), {}).parts == {"shift"}
