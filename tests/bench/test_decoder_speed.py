"""Times of decoders: packed layers, the device they need, and what is timed."""

import pytest
import torch

import bench_decoder
from bench_decoder import decoder_speeds, main, share_decoders
from bitgnn.inference.bwta.linear import FrozenBWTALinear
from bitgnn.models import Decoder

SIZES = {"layers": 1, "width": 32, "heads": 2, "inner": 32, "length": 12}


def test_shares_of_layers_are_packed(monkeypatch):
    monkeypatch.setattr(bench_decoder, "SHARES", {"fp32": 0.0, "some": 0.3})
    models, layers = share_decoders(SIZES, torch.device("cpu"))
    assert layers == {"fp32": 0, "some": 2}
    packed = [m for m in models["some"].modules() if isinstance(m, FrozenBWTALinear)]
    assert len(packed) == 2
    assert models["some"](torch.zeros(1, 3, dtype=torch.int64)).shape == (1, 3, 100)


@pytest.mark.skipif(torch.cuda.is_available(), reason="without a CUDA device")
def test_times_need_a_gpu(capsys):
    assert main([]) == 1
    assert "bench_decoder: error: torch finds no CUDA device" in capsys.readouterr().err


@pytest.mark.cuda
def test_prompts_and_tokens_are_timed():
    models = {name: Decoder(20, **SIZES).cuda().eval() for name in ("one", "other")}
    speeds = decoder_speeds(models, batch=2)
    assert list(speeds) == ["one", "other"]
    for speed in speeds.values():
        assert (speed["batch"], speed["prompt"]) == (2, 11)
        assert speed["captured"]
        assert speed["decode_seconds"] > 0
        assert speed["prefill_seconds"] > 0
        assert speed["bytes"] == sum(t.nbytes for t in models["one"].parameters()) + sum(
            t.nbytes for t in models["one"].buffers()
        )
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
