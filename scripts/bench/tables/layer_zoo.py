"""Markdown of records of ``layer_zoo.py``: binary parts of each layer, and accuracy."""

from __future__ import annotations

from bench.report import Record, table, trained_on

WHAT = {
    "GCNConv": "product and sum",
    "GATConv": "product and messages",
    "GATv2Conv": "product and messages",
    "GCNConv, MLP": "all maps but a head, and the sum",
    "GINConv": "sum and MLP",
    "SGConv": "product, first sum",
    "SSGConv": "product, first sum",
    "TAGConv": "products, first sum",
    "ChebConv": "products, first sum",
    "APPNP": "the MLP in front",
    "MLP": "all maps but a head",
}
"""Binary parts of a layer; of other layers, the maps, while PyG's code sums floats."""
COST = {
    "GCNConv": "a bit a feature of an edge; integers in the last layer",
    "GATConv": "a bit a feature of an edge; float scores",
    "GATv2Conv": "a bit a feature of an edge; float scores",
    "GCNConv, MLP": "that of GCNConv",
    "GINConv": "integers times binary weights",
    "SGConv": "K - 1 sums of floats, as wide as the result",
    "SSGConv": "K - 1 sums of floats, as wide as the result",
    "TAGConv": "K - 1 sums of floats, as wide as the result",
    "ChebConv": "K - 2 sums of floats, as wide as the result",
    "APPNP": "all sums, of scores",
    "MLP": "that of GCNConv",
}
"""Sums that stay; of other layers, PyG's messages of floats."""


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
        ("cost", lambda row: COST.get(row["layer"], "messages of floats")),
        ("weights in bits, %", lambda row: f"{row['bits']:.0f}"),
        ("floats, %", lambda row: f"{row['fp32']:.1f}"),
        ("binary, %", lambda row: f"{row['bin']:.1f}"),
        ("behind, points", lambda row: f"{row['mean_gap']:.1f}"),
        ("most behind", lambda row: f"{row['worst_gap']:.1f} ({row['worst_graph']})"),
        ("frozen decides otherwise, nodes", lambda row: str(row["differing_nodes"])),
    )
    return (
        f"{trained_on(record, pyg=True)}; two layers, plain loops of {epochs} epochs, {seeds} "
        f"seed(s), mean over {graphs}.\n\n{found}"
    )
