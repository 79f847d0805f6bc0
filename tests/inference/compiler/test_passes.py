"""Passes of the compiler over a few values: what readers need, what folds, which map is first."""

import pytest
import torch

from bitgnn.convert.network.demands import Demands, input_gain
from bitgnn.convert.network.folding import binarised, fold_linear_maps
from bitgnn.convert.network.functions import classes_of
from bitgnn.convert.network.passes import set_output, settle_orders
from bitgnn.convert.network.values import Network, Value, canonical, collapse, is_unit, with_size
from bitgnn.inference.functions import FUNCTIONS
from bitgnn.inference.graph import GraphSpec

N = 12
MATRIX = torch.rand(N, N, generator=torch.Generator().manual_seed(0))


def wide(size=40):
    return Value("input", "x", size=size)


def function(name, value, **attributes):
    tensors = {k: v for k, v in attributes.items() if isinstance(v, torch.Tensor)}
    plain = {k: v for k, v in attributes.items() if k not in tensors}
    return Value("function", name, (value,), value.size, name, plain, tensors)


def norm(value, **tensors):
    size = value.size
    tensors = {"weight": torch.randn(size), "bias": torch.randn(size), **tensors}
    mean, var = torch.randn(size), torch.rand(size) + 0.1
    return function("batch_norm", value, mean=mean, var=var, eps=1e-5, **tensors)


def linear(layer, value, out, bias=True):
    tensors = {"weight": torch.randn(out, value.size)}
    tensors |= {"bias": torch.randn(out)} if bias else {}
    return Value("linear", layer, (value,), out, tensors=tensors)


def aggregate(layer, value):
    return Value("aggregate", layer, (value,), value.size, spec=GraphSpec())


def product(layer, value, out, **options):
    return Value(
        "product", layer, (value,), out, tensors={"weight": torch.randn(out, 3)}, **options
    )


def network(scores, features):
    found = Network()
    found.inputs, found.scores = (features,), scores
    return found


def computed(value, x):
    """What a value is, in plain torch."""
    parts = [computed(part, x) for part in value.inputs]
    if value.kind == "function":
        return FUNCTIONS[value.name].apply(parts[0], value.tensors, value.attributes)
    if value.kind in ("linear", "product"):
        source = parts[0] if value.kind == "linear" else torch.where(parts[0] >= 0, 1.0, -1.0)
        weight = value.tensors["weight" if value.kind == "linear" else "float_weight"]
        found = source @ weight.t() + value.tensors.get("bias", 0.0)
        return found if len(parts) == 1 else found + parts[1]
    if value.kind == "aggregate":
        return MATRIX @ parts[0] + value.tensors.get("bias", 0.0)
    joined = {"input": lambda: x, "add": lambda: sum(parts), "cat": lambda: torch.cat(parts, 1)}
    return joined[value.kind]()


def assert_folds(scores, features, **expected):
    """The same numbers behind folding, and the layers that moved."""
    x = torch.randn(N, features.size)
    before = computed(scores, x)
    folded = fold_linear_maps(network(scores, features))
    torch.testing.assert_close(computed(scores, x), before, rtol=1e-3, atol=1e-3)
    assert folded == expected


def test_signs_are_traced_to_what_computes_them():
    x = wide()
    clipped = function("hardtanh", function("scale", x, factor=2.0), low=-1.0, high=1.0)
    assert canonical(clipped) is x
    shifted = function("shift", clipped, term=1.0)
    assert canonical(shifted) is shifted
    assert collapse(shifted) == (x, [clipped.inputs[0], clipped, shifted])
    signs = function("sign", x)
    assert is_unit(Value("cat", "c", (signs, function("hardtanh", signs, low=-1.0, high=1.0))))
    assert not is_unit(function("hardtanh", signs, low=-0.5, high=1.0))
    assert not is_unit(Value("cat", "c", (signs, x)))
    unknown = function("relu", Value("input", "x"))
    assert with_size(unknown, 7, "layer").inputs[0].size == 7
    with pytest.raises(ValueError, match="layer 'layer' takes 8 features, gets 7"):
        with_size(unknown, 8, "layer")


def test_operators_write_bits_for_one_reader_of_signs():
    x = wide()
    hidden = product("a", function("sign", x), 8, takes_sign_of_dot=True)
    last = product("b", hidden, 4, scaled=True)
    assert not Demands(last).writes_bits(hidden)  # its row scale is wanted
    last.scaled = False
    demands = Demands(last)
    assert demands.writes_bits(hidden)
    assert demands.drops_scale == {hidden}
    other = product("c", function("shift", hidden, term=1.0), 4)
    both = Demands(Value("add", "sum", (last, other), 4))
    assert not both.writes_bits(hidden)  # signs behind two functions
    assert hidden not in both.drops_scale
    floats = Demands(Value("add", "sum", (last, hidden), 8))  # which read it, too
    assert not floats.writes_bits(hidden)
    assert hidden not in floats.drops_scale
    hidden.tensors = {"float_weight": torch.randn(8, 40)}
    assert not Demands(last).writes_bits(hidden)


def test_a_norm_of_the_features_is_a_centre_and_a_positive_gain():
    x = wide(6)
    value = norm(x)
    centre, gain = input_gain(value)
    features = torch.randn(N, 6)
    expected = computed(value, features).abs()
    torch.testing.assert_close((features - centre).abs() * gain, expected, rtol=1e-4, atol=1e-4)
    assert input_gain(norm(x, weight=torch.zeros(6))) is None
    assert input_gain(norm(function("relu", x))) is None


@pytest.mark.parametrize("between", ["norm", "bias", "gain", "scale", "shift", "linear", "signs"])
def test_maps_behind_affine_functions_are_composed(between):
    x = wide()
    value = {
        "norm": lambda v: norm(v),
        "bias": lambda v: function("bias", v, bias=torch.randn(40)),
        "gain": lambda v: function("gain", v, gain=torch.randn(40)),
        "scale": lambda v: function("scale", v, factor=-3.0),
        "shift": lambda v: function("shift", v, term=2.0),
        "linear": lambda v: v,
        "signs": lambda v: Value("add", "s", (v, function("sign", x)), 40),
    }[between](linear("first", x, 40))
    assert_folds(linear("last", value, 3), x, last="composed with first")


def test_what_would_save_nothing_stays():
    x = wide(4)
    shared = linear("first", x, 40)  # which another value reads, too
    twice = Value("add", "sum", (linear("last", shared, 3), function("relu", shared)), 3)
    assert fold_linear_maps(network(twice, x)) == {}
    behind_relu = linear("last", function("relu", linear("first", x, 40)), 3)
    assert_folds(behind_relu, x)
    x = wide()
    growing = linear("last", linear("first", x, 2), 400)
    assert_folds(growing, x)
    fixed = linear("last", linear("first", x, 40), 3)
    assert fold_linear_maps(network(fixed, x), fixed=["last"]) == {}


def test_nothing_in_front_of_a_sign_is_touched():
    x = wide()
    inner = linear("middle", linear("first", x, 40), 30)
    scores = product("last", inner, 3)
    assert inner in binarised(scores)
    assert inner.inputs[0] in binarised(scores)
    assert fold_linear_maps(network(scores, x)) == {}


def test_aggregations_meet_the_fewer_columns():
    x = wide(8)
    assert_folds(
        aggregate("conv", linear("conv", x, 40, bias=False)), x,
        conv="aggregates in front of its map",
    )  # fmt: skip
    assert_folds(aggregate("conv", linear("conv", x, 40)), x)  # the bias would be summed
    x = wide(40)
    moved = linear("last", aggregate("conv", linear("conv", x, 40, bias=False)), 3)
    assert_folds(moved, x, last="composed with conv")


def test_plans_name_the_order_of_float_maps():
    x = wide(8)
    scores = aggregate("conv", linear("conv", x, 3, bias=False))
    values, rows = network(scores, x), torch.randn(N, 8)
    expected = computed(scores, rows)
    for order, kind in (("aggregate_first", "linear"), ("transform_first", "aggregate")):
        settle_orders(values, {"conv": order}, fold=True)
        assert scores.kind == kind
        assert values.orders == {"conv": order}
        torch.testing.assert_close(computed(scores, rows), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match=r"plan orders \['other'\]"):
        settle_orders(values, {"other": "aggregate_first"}, fold=True)
    for closed in (linear("conv", x, 3), linear("inner", x, 3, bias=False)):
        with pytest.raises(ValueError, match=r"plan orders \['conv'\]"):
            settle_orders(network(aggregate("conv", closed), x), {"conv": "aggregate_first"}, True)


def test_ends_of_networks():
    scores = linear("last", wide(), 3)
    soft = function("log_softmax", function("scale", scores, factor=4.0))
    assert classes_of("classes", soft).inputs == (scores,)
    turned = function("scale", scores, factor=-1.0)
    assert classes_of("classes", turned).inputs == (turned,)
    values = network(function("softmax", function("relu", scores)), scores.inputs[0])
    for output in ("log_softmax", "softmax"):
        set_output(values, output)
        assert values.scores.name == output
        assert values.scores.inputs[0].name == "relu"


def test_standardised_rows_are_packed_from_the_floats_in_front():
    x = wide()
    rows = function("standardize", function("relu", x))
    demands = Demands(product("last", rows, 3, scaled=True))
    assert x in demands.floats
    assert not {rows, rows.inputs[0]} & demands.floats
    assert rows in demands.scaled
    shifted = function("shift", rows, term=0.25)
    demands = Demands(product("last", shifted, 3))
    assert {rows, rows.inputs[0]} <= demands.floats  # another sign than the row's own
