"""Draws the charts that docs/results/ and README.md show, from the records in scripts/results/."""

import argparse
import io
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from bench.charts import gaps_chart, models_chart, ratios_chart
from bench.default_chart import defaults_chart
from bench.tables.documents import read_records

RESULTS = Path(__file__).resolve().parent / "results"
CHARTS: Mapping[str, tuple[str, Callable[..., Figure]]] = {
    "ops": ("ops", partial(ratios_chart, "Operators")),
    "ops_cuda": ("ops_cuda", partial(ratios_chart, "Operators")),
    "bnn_cpu": ("bnn_cpu", partial(ratios_chart, "Binary convolutions and networks")),
    "bnn_cuda": ("bnn_cuda", partial(ratios_chart, "Binary convolutions and networks")),
    "bwta_cpu": ("bwta_cpu", partial(ratios_chart, "Binary weights, ternary activations")),
    "bwta_cuda": ("bwta_cuda", partial(ratios_chart, "Binary weights, ternary activations")),
    "plain_loop": ("plain_loop", gaps_chart),
    "plain_loop_depth": ("plain_loop_depth", gaps_chart),
    "distilled": ("distilled", gaps_chart),
    "default": ("default_c*", defaults_chart),
    "models_cpu": ("models_cpu", models_chart),
    "models_cuda": ("models_cuda", models_chart),
}
"""Names of pictures, each with a pattern of its records' names and what draws them."""


def draw(records: Path, folder: Path) -> list[Path]:
    """Draws every chart whose records are there; the pictures' paths."""
    drawn = []
    for name, (pattern, chart) in CHARTS.items():
        found = read_records(records, pattern)
        if found:
            drawn.append(folder / f"{name}.png")
            picture = io.BytesIO()
            chart(*found).savefig(picture, dpi=110)
            few_colours = Image.open(picture).convert("RGB").quantize(256)
            few_colours.save(drawn[-1], optimize=True)  # less than half of the bytes
    return drawn


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    for path in draw(RESULTS, RESULTS):
        print(path.name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
