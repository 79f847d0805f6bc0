"""The decoder: its cache, positions, levels, and what it refuses."""

import itertools

import pytest
import torch

from bitgnn.models import Decoder
from bitgnn.nn.multistage import initialize_scales, set_level

SMALL = {"layers": 2, "width": 32, "heads": 2, "inner": 48}


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
