"""Figures that binary convolutions and networks are to reach."""

from __future__ import annotations

from collections.abc import Mapping

from bench.cases import Goal

LATENCY_IMAGES = 8

FLOAT16 = "cuDNN fp16"

CONV_GOALS: Mapping[int, tuple[Goal, ...]] = {
    128: (Goal("ratio", 4.0, FLOAT16),),
    640: (Goal("seconds", 78e-6), Goal("ratio", 8.0, FLOAT16)),
    2048: (Goal("ratio", 9.0, FLOAT16),),
}
"""Bits in and out, 3x3, 16 images of 64x64, by channels."""

NETWORK_GOALS: Mapping[str, tuple[float, float]] = {
    "mlp": (8e-6, 80e6),
    "vgg": (35e-6, 1e6),
    "resnet14": (55e-6, 1.6e6),
    "alexnet": (75e-6, 250e3),
    "vgg16": (260e-6, 40e3),
    "resnet18": (85e-6, 290e3),
}
"""Seconds of 8 images, and images a second of a large batch, on an H200."""
TIMES_FASTER = 3.0
"""Than the same structure compiled in fp16, in latency and in throughput."""

CPU_LAYER_GOALS: Mapping[str, tuple[Goal, ...]] = {"128 to 128, 3x3, 56x56": (Goal("ratio", 10.0),)}
CPU_NETWORK_GOALS: Mapping[str, tuple[Goal, ...]] = {"resnet18": (Goal("ratio", 6.0),)}
"""Times faster than torch in fp32 on two cores."""
