"""Where the time of a decoder goes: seconds on the device by kind of operator."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import partial

import torch
from torch.profiler import ProfilerActivity, profile

from bitgnn.models.decoder import Decoder

KINDS = {
    "products of bits": r"bitgnn::",
    "products": r"aten::(mm|bmm|addmm|linear|matmul|baddbmm)",
    "attention": r"aten::.*(attention|softmax)",
    "norms": r"aten::.*norm|aten::(pow|rsqrt|mean)",
    "activations": r"aten::(silu|gelu|relu)",
}
"""Operators by name; the paper's tables 5 and 6 have products, softmax, norms and activations."""
OTHERS = "others"
OPERATORS = ("aten::", "bitgnn::")
"""Beginnings of operators' names; kernels, which belong to one, are listed beside them."""
WARM_UPS, CALLS = 2, 3


@torch.inference_mode()
def operator_times(model: Decoder, batch: int) -> dict[str, dict[str, float]]:
    """Seconds of a prompt and of one token by kind, operator by operator and not captured."""
    device = model.tokens.weight.device
    activity = ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.CPU
    ids = torch.randint(model.tokens.num_embeddings, (batch, model.length - 1), device=device)
    cache, found = model.new_cache(batch), {}
    for part, begin, given in (("prefill", 0, ids), ("decode", ids.size(1), ids[:, :1])):

        def once(begin: int, given: torch.Tensor) -> None:
            cache.position.fill_(begin)
            model.step(given, cache)

        call = partial(once, begin, given)
        for _ in range(WARM_UPS):
            call()
        with profile(activities=list({ProfilerActivity.CPU, activity})) as seen:
            for _ in range(CALLS):
                call()
            if device.type == "cuda":
                torch.cuda.synchronize()
        times: defaultdict[str, float] = defaultdict(float)
        for event in seen.key_averages():
            on_device = event.self_device_time_total
            microseconds = on_device if device.type == "cuda" else event.self_cpu_time_total
            if event.key.startswith(OPERATORS):
                times[kind_of(event.key)] += microseconds * 1e-6 / CALLS
        found[part] = dict(times)
    return found


def kind_of(operator: str) -> str:
    """The kind of an operator by its name."""
    return next((kind for kind, names in KINDS.items() if re.match(names, operator)), OTHERS)
