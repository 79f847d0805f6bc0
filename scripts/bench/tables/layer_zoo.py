"""Markdown of records of ``layer_zoo.py``: binary parts of each layer, and accuracy."""

from __future__ import annotations

from bench.report import Record, table, trained_on

WHAT = {
    "GCNConv": "product and sum",
    "GINConv": "sum and MLP",
    "APPNP": "the MLP in front",
    "MLP": "all maps but a head",
}
"""Binary parts of a layer; of other layers, the maps, while PyG's code sums floats."""


def layer_zoo_table(record: Record) -> str:
    """One row a layer: its binary parts, their share of the weights, and mean accuracies."""
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
