"""The encoder and the decoder: shapes, masks, the cache, levels, and what they refuse."""

import itertools

import pytest
import torch

from bitgnn.models import BertClassifier, Decoder
from bitgnn.nn import BWTALinear
from bitgnn.nn.multistage import initialize_scales, set_level
from bitgnn.nn.seeded_dropout import SeededDropout

SMALL = {"layers": 2, "width": 32, "heads": 2, "inner": 48}


def encoder(precision="fp32", **options):
    torch.manual_seed(0)
    model = BertClassifier(50, 3, length=20, precision=precision, **SMALL, **options)
    ids = torch.randint(0, 50, (4, 9), generator=torch.Generator().manual_seed(1))
    if precision != "fp32":
        initialize_scales(model.eval(), lambda: model(ids))
    return model.eval(), ids


@pytest.mark.parametrize("precision", ["fp32", "binary", "bwta"])
def test_padding_changes_nothing(precision):
    model, ids = encoder(precision)
    mask = torch.arange(9) < torch.tensor([9, 4, 1, 6])[:, None]
    longer = torch.cat([ids, torch.randint(0, 50, (4, 5))], 1)
    wider = torch.cat([mask, torch.zeros(4, 5, dtype=torch.bool)], 1)
    other = torch.where(mask, ids, (ids + 7) % 50)
    expected = model(ids, mask)
    assert expected.shape == (4, 3)
    torch.testing.assert_close(model(longer, wider), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model(other, mask), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "binary", "bwta"])
def test_states_are_what_distillation_compares(precision):
    model, ids = encoder(precision)
    logits, states = model.with_states(ids.int())
    assert torch.equal(logits, model(ids))
    assert [tuple(x.shape) for x in states.hidden] == [(4, 9, 32)] * 3
    assert [tuple(x.shape) for x in states.feed_forward] == [(4, 9, 32)] * 2
    assert [tuple(x.shape) for x in states.attention] == [(4, 2, 9, 9)] * 2
    sums = states.attention[0].sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_forms_share_their_parameters():
    teacher, ids = encoder("fp32")
    for precision in ("binary", "bwta"):
        student, _ = encoder(precision)
        student.load_state_dict(teacher.state_dict())
        set_level(student, None)
        torch.testing.assert_close(student(ids), teacher(ids))
    assert all(m.level is None for m in teacher.modules() if isinstance(m, BWTALinear))


def test_high_levels_come_close_to_full_precision():
    teacher, ids = encoder("fp32")
    student, _ = encoder("bwta")
    student.load_state_dict(teacher.state_dict())
    errors = []
    for level in (1, 16):
        set_level(student, level)
        initialize_scales(student, lambda: student(ids))
        hidden = student.with_states(ids)[1].attention[0]
        errors.append(
            float((hidden - teacher.with_states(ids)[1].attention[0]).detach().abs().sum())
        )
    assert errors[1] < errors[0]


@pytest.mark.parametrize("precision", ["binary", "bwta"])
def test_every_parameter_learns(precision):
    model, ids = encoder(precision)
    model.train()
    logits, states = model.with_states(ids)
    (logits.square().sum() + sum(x.square().sum() for x in states.hidden)).backward()
    missing = [name for name, p in model.named_parameters() if p.grad is None]
    assert not missing
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 3}, "heads must divide width 32, got 3"),
        ({"precision": "int8"}, "precision must be one of"),
        ({"layers": 0}, "layers must be at least 1, got 0"),
    ],
)
def test_arguments_of_the_encoder(change, message):
    with pytest.raises(ValueError, match=message):
        BertClassifier(50, 3, **{**SMALL, **change})


def test_input_of_the_encoder():
    model, ids = encoder()
    with pytest.raises(ValueError, match=r"ids must be \[B, 1 to 20\], got \[4, 21\]"):
        model(torch.zeros(4, 21, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"ids must be \[B, 1 to 20\], got \[4, 0\]"):
        model(ids[:, :0])
    with pytest.raises(ValueError, match=r"mask must be bool \[4, 9\], got torch.int64"):
        model(ids, torch.ones_like(ids))


def decoder(**options):
    torch.manual_seed(0)
    return Decoder(40, **{**SMALL, "length": 24, **options}).eval()


@pytest.mark.parametrize("kv_heads", [None, 1])
@pytest.mark.parametrize("level", [None, 1])
def test_the_cache_gives_what_the_whole_context_gives(kv_heads, level):
    model = decoder(kv_heads=kv_heads)
    ids = torch.randint(0, 40, (3, 24))
    set_level(model, level)
    if level is not None:
        initialize_scales(model, lambda: model(ids))
    whole = model(ids)
    cache = model.new_cache(3)
    found = [model.step(ids[:, :7], cache)]
    found += [model.step(ids[:, i : i + 1], cache) for i in range(7, 24)]
    assert int(cache.position) == 24
    if level is None:
        torch.testing.assert_close(torch.stack(found, 1), whole[:, 6:], rtol=1e-4, atol=1e-5)
    else:
        # Rounding of floats may turn an activation at the limit of 0 to its neighbour.
        close = torch.isclose(torch.stack(found, 1), whole[:, 6:], rtol=1e-3, atol=1e-3)
        assert close.float().mean() > 0.95


def test_nothing_is_seen_of_the_future():
    model = decoder()
    ids = torch.randint(0, 40, (1, 10))
    changed = ids.clone()
    changed[0, 6:] = (changed[0, 6:] + 1) % 40
    torch.testing.assert_close(model(ids)[:, :6], model(changed)[:, :6])
    assert not torch.allclose(model(ids)[:, 6:], model(changed)[:, 6:])


def test_positions_turn_queries_and_keys_by_their_distance():
    model = decoder()
    x = torch.randn(1, 1, 24, 16)
    from bitgnn.models.decoder import _turn

    turned = _turn(x, (model.cosines, model.sines))
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    same = x[:, :, :1].expand(1, 1, 24, 16)
    turned = _turn(same, (model.cosines, model.sines))[0, 0]
    products = turned @ turned.T
    for i, j in itertools.product(range(5), range(5)):
        torch.testing.assert_close(products[i, j], products[i + 9, j + 9], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 3}, r"width must be a multiple of 2 \* heads, got 32"),
        ({"kv_heads": 3}, "kv_heads must divide heads 2, got 3"),
        ({"length": 0}, "length must be at least 1, got 0"),
    ],
)
def test_arguments_of_the_decoder(change, message):
    with pytest.raises(ValueError, match=message):
        decoder(**change)


def test_input_of_the_decoder():
    model = decoder()
    with pytest.raises(ValueError, match=r"ids must be \[B, 1 to 24\], got \[2, 25\]"):
        model(torch.zeros(2, 25, dtype=torch.int64))
    with pytest.raises(ValueError, match="batch must be at least 1, got 0"):
        model.new_cache(0)
    with pytest.raises(ValueError, match="must have the cache's 2 contexts, got 3"):
        model.step(torch.zeros(3, 1, dtype=torch.int64), model.new_cache(2))


def test_dropout_with_its_own_numbers():
    dropout = SeededDropout(0.25)
    x = torch.ones(1000)
    dropout.generator = torch.Generator().manual_seed(3)
    first = dropout(x)
    torch.manual_seed(17)
    dropout.generator.manual_seed(3)
    assert torch.equal(dropout(x), first)
    torch.testing.assert_close(first.unique(), torch.tensor([0.0, 1 / 0.75]))
    assert 150 < int((first == 0).sum()) < 350
    assert torch.equal(dropout.eval()(x), x)
