"""Markdown of what ``layer_zoo.py`` records: what becomes bits in each layer, and accuracy."""

from __future__ import annotations

from bench.report import Record, table, trained_on

WHAT = {
    "GCNConv": "product and sum",
    "GINConv": "sum and MLP",
    "APPNP": "the MLP in front",
    "MLP": "all maps but a head",
}
"""What becomes bits; of other layers it is their maps, and PyG's code sums floats."""


def layer_zoo_table(record: Record) -> str:
    """One row a layer: what becomes bits, share of the weights, and mean accuracies."""
    runs, rows = record["runs"], record["summary"]
    graphs = ", ".join(dict.fromkeys(run["graph"] for run in runs))
    seeds = len({run["seed"] for run in runs})
    epochs = ", ".join(sorted({str(run["epochs"]) for run in runs}))
    found = table(
        rows,
        ("layer", lambda row: row["layer"]),
        ("becomes bits", lambda row: WHAT.get(row["layer"], "maps")),
        ("weights in bits, %", lambda row: f"{row['bits']:.0f}"),
        ("floats, %", lambda row: f"{row['fp32']:.1f}"),
        ("binary, %", lambda row: f"{row['bin']:.1f}"),
        ("frozen decides otherwise, nodes", lambda row: str(row["differing_nodes"])),
    )
    return (
        f"{trained_on(record, pyg=True)}; two layers, plain loops of {epochs} epochs, {seeds} "
        f"seed(s), mean over {graphs}.\n\n{found}"
    )
