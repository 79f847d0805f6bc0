"""The norm behind binary products: batches of a few rows, down to one, and all other batches."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim.swa_utils import update_bn
from torch.utils.checkpoint import checkpoint

from bitgnn.nn import GCNConv, GraphConv, SAGEConv
from bitgnn.nn.norms import ENOUGH_ROWS, ProductNorm

CHANNELS = 5
LAYERS = pytest.mark.parametrize("kind", [GCNConv, SAGEConv, GraphConv])


@pytest.fixture
def norm():
    torch.manual_seed(0)
    made = ProductNorm(CHANNELS)
    nn.init.normal_(made.weight)
    nn.init.normal_(made.bias)
    return made


def _rows(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 2.0 * torch.randn(count, CHANNELS, generator=generator) + 3.0


def _statistics(norm):
    return torch.stack([norm.running_mean, norm.running_var])


def _mixed(held, rows, share):
    """Moments of a mixture of what is held and of rows, by its definition."""
    mean = (1 - share) * held[0] + share * rows.mean(0)
    square = (1 - share) * (held[1] + held[0] ** 2) + share * (rows**2).mean(0)
    return mean, square - mean**2


@pytest.mark.parametrize("count", [1, 2, 5, 31, 255])
def test_few_rows_are_blended_with_the_running_statistics(norm, count):
    norm = norm.double()
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2.0)
    norm.num_batches_tracked.fill_(1000)
    x = _rows(count).double().requires_grad_()
    held = norm.running_mean.clone(), norm.running_var.clone()
    mean, variance = _mixed(held, x, count / ENOUGH_ROWS)
    expected = norm.weight * (x - mean) / (variance + norm.eps).sqrt() + norm.bias
    out = norm(x)
    torch.testing.assert_close(out, expected)
    for got, wanted in zip(
        torch.autograd.grad(out.square().sum(), [x, *norm.parameters()]),
        torch.autograd.grad(expected.square().sum(), [x, *norm.parameters()]),
        strict=True,
    ):
        torch.testing.assert_close(got, wanted)
    moved = _mixed(held, x.detach(), min(0.1, count / ENOUGH_ROWS))
    torch.testing.assert_close(_statistics(norm), torch.stack(moved))
    assert int(norm.num_batches_tracked) == 1001


def test_first_batches_are_averaged_beside_one_row_of_initial_statistics(norm):
    rows = _rows(24)
    for part in rows.split(4):
        norm(part)
    mean = rows.sum(0) / 25
    square = (rows.square().sum(0) + 1) / 25
    torch.testing.assert_close(norm.running_mean, mean)
    torch.testing.assert_close(norm.running_var, square - mean**2)


@pytest.mark.parametrize("training", [True, False])
def test_many_rows_and_evaluation_are_a_plain_batch_norms(norm, training):
    plain = nn.BatchNorm1d(CHANNELS)
    plain.load_state_dict(norm.state_dict())
    assert repr(norm) == repr(plain)
    for seed in range(3):
        x = _rows(ENOUGH_ROWS if training else 7, seed)
        assert torch.equal(norm.train(training)(x), plain.train(training)(x))
    assert norm.state_dict().keys() == plain.state_dict().keys()
    for name, value in plain.state_dict().items():
        assert torch.equal(norm.state_dict()[name], value), name


def test_no_rows_give_no_rows(norm):
    before = _statistics(norm)
    assert norm(_rows(0)).shape == (0, CHANNELS)
    assert torch.equal(_statistics(norm), before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_results_have_the_dtype_of_the_rows(norm, dtype):
    x = _rows(6).to(dtype)
    other = copy.deepcopy(norm)
    out = norm(x)
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), other(x.float()), rtol=1e-2, atol=1e-2)
    assert norm.running_mean.dtype == torch.float32


def test_rows_need_not_be_contiguous(norm):
    x = _rows(12).t().contiguous().t()[::2]
    assert torch.equal(copy.deepcopy(norm)(x), norm(x.contiguous()))


def test_gradients_being_recorded_changes_nothing(norm):
    other = copy.deepcopy(norm)
    for seed in range(3):
        with torch.no_grad():
            silent = other(_rows(6, seed))
        assert torch.equal(norm(_rows(6, seed)), silent)
    assert torch.equal(_statistics(norm), _statistics(other))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_repeats_the_forward(norm, reentrant):
    norm(_rows(6))
    found = []
    for use in (False, True):
        layer = copy.deepcopy(norm)
        x = _rows(6, 1).requires_grad_()
        out = checkpoint(layer, x, use_reentrant=reentrant) if use else layer(x)
        out.square().sum().backward()
        found.append((out, x.grad, layer.weight.grad, *layer.buffers()))
    for plain, repeated in zip(*found, strict=True):
        assert torch.equal(plain, repeated)


def test_averaged_weights_get_statistics_of_all_batches(norm):
    norm(_rows(6))
    rows = _rows(24, 1)
    update_bn(list(rows.split(4)), norm)
    torch.testing.assert_close(norm.running_mean, rows.sum(0) / 25)
    assert norm.momentum == 0.1


def test_compiled_norms_do_the_same(norm):
    compiled = copy.deepcopy(norm)
    step = torch.compile(compiled, backend="aot_eager", fullgraph=True)
    for seed in range(3):
        x, y = _rows(6, seed).requires_grad_(), _rows(6, seed).requires_grad_()
        out, expected = step(x), norm(y)
        torch.testing.assert_close(out, expected)
        grads = (torch.autograd.grad(o.square().sum(), i)[0] for o, i in ((out, x), (expected, y)))
        torch.testing.assert_close(*grads)
    torch.testing.assert_close(_statistics(compiled), _statistics(norm))


@LAYERS
def test_a_single_node_trains_a_layer(kind):
    torch.manual_seed(0)
    edges = torch.zeros(2, 1, dtype=torch.long)
    model = nn.ModuleList([kind(8, 16), kind(16, 3)])
    for seed in range(3):
        x = torch.randn(1, 8, generator=torch.Generator().manual_seed(seed))
        functional.cross_entropy(
            model[1](model[0](x, edges).relu(), edges), torch.tensor([1])
        ).backward()
    norm = model[0].hidden_norm
    # Before the first result is read by another layer, this one is a last one.
    assert int(norm.num_batches_tracked) >= 2
    assert norm.running_mean.count_nonzero() > 0
    for name, parameter in model[0].named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name
    assert next(model[0].parameters()).grad is not None


def test_weights_of_a_pattern_get_the_gradient_of_few_rows():
    torch.manual_seed(0)
    layer = GCNConv(40, CHANNELS, role="first", precision="full")
    loops = torch.arange(9).repeat(2, 1)
    layer.hidden_norm.num_batches_tracked.fill_(100)
    norm = copy.deepcopy(layer.hidden_norm)
    x, given = (torch.rand(9, 40) < 0.1).float(), torch.randn(9, CHANNELS)
    layer(x, loops).backward(given)
    assert layer.input_bits.kind == "pattern"
    bits, weight = layer.input_bits, layer.lin.weight.detach()
    signs = torch.where(weight >= 0, 1.0, -1.0).requires_grad_()
    norm(bits.unit * (x + bits.bit_offset) @ signs.t()).backward(given)
    torch.testing.assert_close(layer.lin.weight.grad, signs.grad * (weight.abs() <= 1))


@LAYERS
def test_thresholds_start_spread_by_the_number_of_features(kind):
    def spread(layer):
        return layer.hidden_norm.bias.detach().clone()

    torch.manual_seed(0)
    one, four = kind(1, 1001), kind(4, 1001)
    quantiles = torch.tensor([0.1, 0.5, 0.9])
    expected = torch.tensor([-1.2816, 0.0, 1.2816])
    torch.testing.assert_close(spread(one).quantile(quantiles), expected, atol=0.01, rtol=0.0)
    torch.testing.assert_close(spread(one), 2 * spread(four))
    lazy = kind(-1, 1001)
    assert not spread(lazy).any()
    lazy(torch.randn(5, 4), torch.tensor([[0, 1], [1, 0]]))
    torch.testing.assert_close(spread(lazy), spread(four))
    nn.init.ones_(four.hidden_norm.bias)
    four.reset_parameters()
    torch.testing.assert_close(spread(four), spread(lazy))


@LAYERS
def test_one_feature_gives_bits_that_differ(kind):
    torch.manual_seed(0)
    layer = kind(1, 16, role="first")
    x, edges = torch.randn(400, 1), torch.arange(400).repeat(2, 1)
    signs = []
    layer.hidden_norm.register_forward_hook(lambda module, args, out: signs.append(out >= 0))
    layer(x, edges)
    columns = torch.unique(signs[0].float(), dim=1).size(1)
    assert columns >= 14
