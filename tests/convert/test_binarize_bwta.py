"""binarize() with a BWTAConfig: which layers, by which error, with which activations; bad input."""

import copy

import pytest
import torch
from torch import nn
from wrong_calls import check_wrong_calls

import bitgnn
from bitgnn import BWTAConfig
from bitgnn.convert import report_of
from bitgnn.convert.bwta import output_errors
from bitgnn.nn import BWTALinear, BWTAMultiheadAttention


class Network(nn.Module):
    """Blocks in a ModuleList between a first and a last layer."""

    def __init__(self, blocks: int = 5) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
            for _ in range(blocks)
        )
        self.last = nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.last(x)


@pytest.fixture
def network() -> Network:
    torch.manual_seed(0)
    return Network()


BODY = [f"blocks.{i}.{j}" for i in range(5) for j in (1, 3)]


def swapped(model: nn.Module) -> list[str]:
    return [name for name, m in model.named_modules() if isinstance(m, BWTALinear)]


def test_all_but_first_and_last(network: Network) -> None:
    state = copy.deepcopy(network.state_dict())
    model = bitgnn.binarize(network, BWTAConfig())
    assert swapped(model) == BODY
    assert set(report_of(model).left) == {"first", "last"}
    assert not swapped(network)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, state[name])
        assert torch.equal(model.state_dict()[name], tensor)
    parameters = {id(p) for p in model.parameters()}
    assert not parameters & {id(p) for p in network.parameters()}
    model(torch.randn(8, 16)).square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_calibration_starts_scales_and_finds_what_is_never_negative(network: Network) -> None:
    x = torch.randn(64, 16)
    model = bitgnn.binarize(network.eval(), BWTAConfig(calibration=x))
    assert not model.training
    assert model(x).isfinite().all()
    kinds = {name: model.get_submodule(name).activation for name in swapped(model)}
    assert kinds == {name: "ternary" if name.endswith("1") else "bool" for name in BODY}
    first = model.blocks[0][1].input_quantizer.scale
    torch.testing.assert_close(
        first.detach(), 2 * model.blocks[0][0](model.first(x)).abs().mean().detach()
    )
    frozen = bitgnn.freeze(model)
    assert torch.equal(frozen(x), model(x))


@pytest.mark.parametrize("relative", [False, True])
def test_errors_are_those_of_each_layer_alone(network: Network, relative: bool) -> None:
    x = torch.randn(64, 16)
    errors = output_errors(network, x, relative=relative)
    assert list(errors.values()) == sorted(errors.values())
    assert set(errors) == {"first", "last", *BODY}
    layer = BWTALinear(32, 64)
    layer.load_state_dict(network.blocks[0][1].state_dict())
    with torch.no_grad():
        seen = network.blocks[0][0](network.first(x))
        wanted = network.blocks[0][1](seen)
        error = (layer(seen) - wanted).square().mean()
        expected = error / wanted.square().mean() if relative else error
    assert errors["blocks.0.1"] == pytest.approx(float(expected), rel=1e-5)


def test_shares_take_the_layers_of_least_error(network: Network) -> None:
    x = torch.randn(64, 16)
    errors = output_errors(network, x, BODY)
    for share, count in ((0.1, 1), (0.3, 3), (1.0, 10)):
        config = BWTAConfig(layers=share, calibration=x, activation="ternary")
        model = bitgnn.binarize(network, config)
        assert set(swapped(model)) == set(list(errors)[:count])
        left = report_of(model).left
        assert sum("is not among" in reason for reason in left.values()) == 10 - count
    # All of them are chosen without data.
    assert set(swapped(bitgnn.binarize(network, BWTAConfig(layers=1.0)))) == set(errors)


def test_forms_of_calibration(network: Network) -> None:
    x = torch.randn(32, 16)
    whole = output_errors(network, x)
    for calibration in ((x,), {"x": x}, lambda model: model(x), [x], [(x,)]):
        assert output_errors(network, calibration) == whole
    halves = output_errors(network, [x[:16], x[16:]])
    assert halves.keys() == whole.keys()


def test_layers_that_are_bwta_already_change_level(network: Network) -> None:
    model = bitgnn.binarize(network, BWTAConfig())
    for name in swapped(model):
        model.get_submodule(name).level = None
    x = torch.randn(32, 16)
    # The measured model is in floats throughout, whatever levels there were.
    assert output_errors(model, x) == pytest.approx(output_errors(network, x))
    share = bitgnn.binarize(model, BWTAConfig(layers=0.2, calibration=x))
    levels = [share.get_submodule(name).level for name in swapped(share)]
    assert sorted(levels, key=str) == [1] * 2 + [None] * 8
    assert all(model.get_submodule(name).level is None for name in swapped(model))
    frozen = bitgnn.freeze(share.eval())
    assert torch.equal(frozen(x), share(x))


def test_names_and_skip(network: Network) -> None:
    model = bitgnn.binarize(network, BWTAConfig(layers=["last", "blocks.0.1"]))
    assert swapped(model) == ["blocks.0.1", "last"]
    model = bitgnn.binarize(network, BWTAConfig(skip=("blocks.0.1",), activation="sign", level=3))
    assert "blocks.0.1" not in swapped(model)
    assert report_of(model).left["blocks.0.1"] == "named in skip"
    assert model.blocks[1][1].level == 3
    assert model.blocks[1][1].activation == "sign"


def test_models_without_module_lists() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    assert swapped(bitgnn.binarize(model, BWTAConfig())) == ["2"]
    embedded = nn.Sequential(nn.Embedding(5, 8), nn.Linear(8, 8), nn.Linear(8, 2))
    assert swapped(bitgnn.binarize(embedded, BWTAConfig())) == ["1"]
    alone = bitgnn.binarize(nn.Linear(4, 3), BWTAConfig(layers=[""]))
    assert isinstance(alone, BWTALinear)


def test_multihead_attention_goes_as_a_whole() -> None:
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 2, 24, batch_first=True), 2, enable_nested_tensor=False
    )
    x = torch.randn(3, 5, 16)
    model = bitgnn.binarize(encoder, BWTAConfig(calibration=(x,)))
    whole = [n for n, m in model.named_modules() if isinstance(m, BWTAMultiheadAttention)]
    assert whole == ["layers.0.self_attn", "layers.1.self_attn"]
    assert model.layers[0].linear2.activation == "bool"
    with torch.no_grad():
        out = model.eval()(x, src_key_padding_mask=torch.zeros(3, 5, dtype=torch.bool))
    assert out.isfinite().all()


UNUSED = nn.ModuleDict({"used": nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])})
ROWS = torch.randn(2, 16)
WRONG = r"""
bitgnn.binarize(nn.Sequential(nn.Conv2d(3, 3, 1)), BWTAConfig())
    -> ValueError: Sequential has no layer to replace
bitgnn.binarize(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), BWTAConfig())
    -> ValueError: has no layer to replace.*'0', '1'.* can be named
bitgnn.binarize(NETWORK, BWTAConfig(layers=["body"])) -> ValueError: has no modules \['body'\]
bitgnn.binarize(NETWORK, BWTAConfig(layers=["blocks.0.0"]))
    -> ValueError: are neither Linear nor MultiheadAttention
bitgnn.binarize(NETWORK, BWTAConfig(layers=0.3))
    -> ValueError: calibration must be data, .* share of 0.3 .* got None
bitgnn.binarize(NETWORK, BWTAConfig(layers=1.5, calibration=ROWS))
    -> ValueError: must be in \(0, 1\], got 1.5
bitgnn.binarize(NETWORK, BWTAConfig(layers=0.01, calibration=ROWS))
    -> ValueError: a share of 0\.01 of 10 layers is none
bitgnn.binarize(NETWORK, BWTAConfig(layers="last"))
    -> TypeError: layers must be a share or names, got str
bitgnn.binarize(NETWORK, BWTAConfig(calibration=ROWS * float("nan")))
    -> ValueError: the input of blocks\.0\.1 holds NaN
bitgnn.binarize(NETWORK, BWTAConfig(layers=[]))
    -> ValueError: layers must name at least one layer, got none
bitgnn.binarize(NETWORK, BWTAConfig(), precision="bin")
    -> TypeError: precision must be given once, got a BWTAConfig and
BWTAConfig(skip=3) -> TypeError: skip must be module names, got 3
BWTAConfig(activation="int8") -> ValueError: activation must be one of
bitgnn.GraphConfig(layers=0.5) -> TypeError: layers must map precisions by module name, got 0\.5
output_errors(UNUSED, lambda model: model["used"][0](torch.randn(2, 4)))
    -> ValueError: calibration never reaches \['used.1'\]
output_errors(NETWORK, 3) -> TypeError: calibration must be a tensor
output_errors(NETWORK, []) -> ValueError: the list of batches is empty
output_errors(NETWORK, ROWS, ["body"]) -> ValueError: layers must be some of .*, got \['body'\]
output_errors(INFINITE, ROWS, ["blocks.2.3"])
    -> ValueError: the output of blocks\.2\.3 holds NaN or infinity
output_errors(INFINITE, ROWS, ["blocks.3.1"])
    -> ValueError: the input of blocks\.3\.1 holds NaN or infinity
"""


def test_errors(network: Network) -> None:
    infinite = copy.deepcopy(network)
    infinite.blocks[2][3].weight.data[0, 0] = torch.inf
    models = {"NETWORK": network, "INFINITE": infinite}
    check_wrong_calls(WRONG, {**globals(), **models})


class Aliased(Network):
    """One block in two places, one of its layers under a name of its own; a shared weight."""

    def __init__(self) -> None:
        super().__init__(2)
        self.blocks[1] = self.blocks[0]
        self.down = self.blocks[0][3]
        self.blocks.append(Network(1).blocks[0])
        self.blocks[2][1].weight = self.blocks[0][1].weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + self.down(self.blocks[0][1](self.first(x))).mean()


def test_a_module_in_several_places_is_replaced_in_all(tmp_path) -> None:
    torch.manual_seed(0)
    network, x = Aliased(), torch.randn(8, 16)
    model = bitgnn.binarize(network, BWTAConfig(calibration=x))
    assert isinstance(model.down, BWTALinear)
    assert model.down is model.blocks[0][3] is model.blocks[1][3]
    assert model.blocks[2][1].weight is model.blocks[0][1].weight
    frozen = bitgnn.freeze(model.eval())
    assert torch.equal(frozen(x), model(x))
    bitgnn.save(frozen, tmp_path)
    loaded = bitgnn.load(tmp_path, network)
    assert torch.equal(loaded(x), model(x))
    assert loaded.nbytes == frozen.nbytes
