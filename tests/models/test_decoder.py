"""The decoder: its cache, positions, levels, and what it refuses."""

import itertools

import pytest
import torch
from wrong_calls import check_wrong_calls

from bitgnn.models import Decoder
from bitgnn.models.decoder import turned_by_position
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
    turned = turned_by_position(x, (model.cosines, model.sines))
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    same = x[:, :, :1].expand(1, 1, 24, 16)
    turned = turned_by_position(same, (model.cosines, model.sines))[0, 0]
    products = turned @ turned.T
    for i, j in itertools.product(range(5), repeat=2):
        torch.testing.assert_close(products[i, j], products[i + 9, j + 9], rtol=1e-4, atol=1e-4)


WRONG = r"""
decoder(heads=3) -> ValueError: width must be a multiple of 2 \* heads, got 32
decoder(kv_heads=3) -> ValueError: kv_heads must divide heads 2, got 3
decoder(length=0) -> ValueError: length must be at least 1, got 0
decoder(activation="bool") -> ValueError: activation must be one of .*, got 'bool'
MODEL(IDS[:2, :25]) -> ValueError: ids must be \[B, 1 to 24\], got \[2, 25\]
MODEL.new_cache(0) -> ValueError: batch must be at least 1, got 0
MODEL.step(IDS[:, :1], MODEL.new_cache(2)) -> ValueError: must have the cache's 2 contexts, got 3
"""


def test_bad_arguments_are_named():
    ids = torch.zeros(3, 30, dtype=torch.int64)
    check_wrong_calls(WRONG, {**globals(), "MODEL": decoder(), "IDS": ids})
