"""Times frozen models of the default forms beside those of the papers' models, at one width.

The default looks up its input's bits; the papers' models, which the tables of times show, take the
signs of features. Weights are drawn, not trained: times do not depend on them.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from plain_loop import GRAPHS, HIDDEN, Tutorial, read
from torch.nn import functional

import bitgnn
from bitgnn import models
from bitgnn.data import DataError
from bitgnn.measure.report import environment, write_json
from bitgnn.measure.timing import compare

FORMS = {"default": "bin", "papers": "bin", "default, full": "full", "papers, full": "full"}
PAPERS = {"GCNConv": models.GCN, "SAGEConv": models.GraphSAGE}


def frozen_model(form: str, layer: str, graph: dict[str, torch.Tensor]) -> Any:
    """A model that has seen its input once in training and once in evaluation."""
    torch.manual_seed(0)
    sizes = graph["x"].size(1), HIDDEN, int(graph["y"].max()) + 1
    model: Any
    if form.startswith("papers"):
        model = PAPERS[layer](*sizes, precision=FORMS[form])
    else:
        model = bitgnn.binarize(Tutorial(layer, list(sizes)), FORMS[form])
    model = model.to(graph["x"].device)
    scores = model(graph["x"], graph["edges"])
    functional.cross_entropy(scores, graph["y"].clamp(min=0)).backward()
    model.eval()
    with torch.no_grad():
        model(graph["x"], graph["edges"])
    return bitgnn.freeze(model, check=False)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="folder with raw data (default: BITGNN_DATA)")
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS), choices=GRAPHS)
    parser.add_argument("--layers", nargs="+", default=list(PAPERS), choices=PAPERS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    output = arguments.output or Path(f"default_speed_{device.type}.json")
    record: dict[str, Any] = {
        "environment": environment(Path(__file__).resolve().parents[2]),
        "cases": [],
    }
    for name in arguments.graphs:
        try:
            graph = {key: value.to(device) for key, value in read(name, arguments.data).items()}
        except DataError as error:
            print(f"default_speed: error: {error}", file=sys.stderr)
            return 1
        for layer in arguments.layers:
            models = {form: frozen_model(form, layer, graph) for form in FORMS}
            calls = {
                form: partial(
                    model, graph["x"], model.prepare_graph(graph["edges"], graph["x"].size(0))
                )
                for form, model in models.items()
            }
            with torch.no_grad():
                times = compare(calls, repeats=arguments.repeats, device=device.type)
            case = {
                "graph": name, "layer": layer, "nodes": graph["x"].size(0),
                "features": graph["x"].size(1), "edges": graph["edges"].size(1),
                "times": {form: timing.to_dict() for form, timing in times.items()},
            }  # fmt: skip
            record["cases"].append(case)
            medians = {form: f"{1e6 * timing.median:.0f} µs" for form, timing in times.items()}
            print(name, layer, medians, flush=True)
            write_json(output, record)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
