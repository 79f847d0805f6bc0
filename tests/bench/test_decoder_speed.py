"""Times of decoders: what is timed, what is refused."""

import pytest
import torch

from bitgnn.bench.decoder_speed import decoder_speeds
from bitgnn.models import Decoder

SIZES = {"layers": 1, "width": 32, "heads": 2, "inner": 32, "length": 12}


def test_arguments():
    with pytest.raises(ValueError, match="models must hold at least one"):
        decoder_speeds({})
    for prompt in (0, 12):
        with pytest.raises(ValueError, match=f"prompt must be from 1 to 11, got {prompt}"):
            decoder_speeds({"one": Decoder(20, **SIZES)}, prompt=prompt)


@pytest.mark.cuda
def test_prompts_and_tokens_are_timed():
    models = {name: Decoder(20, **SIZES).cuda().eval() for name in ("one", "other")}
    speeds = decoder_speeds(models, batch=2)
    assert list(speeds) == ["one", "other"]
    for speed in speeds.values():
        assert (speed.batch, speed.prompt) == (2, 11)
        assert speed.captured
        assert speed.decode_seconds > 0
        assert speed.prefill_seconds > 0
        assert speed.bytes == sum(t.nbytes for t in models["one"].parameters()) + sum(
            t.nbytes for t in models["one"].buffers()
        )
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
