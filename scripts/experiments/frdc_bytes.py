"""Bytes of real graphs as FRDC tiles and as CSR (section 3.2.1 of the BitGNN paper)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bitgnn import BitAdjacency
from bitgnn.data import load
from bitgnn.measure.report import environment, write_json

ROOT = Path(__file__).resolve().parents[2]
GRAPHS = ("Cora", "CiteSeer", "PubMed", "Photo", "Flickr")


def sizes(name: str, root: str | None) -> dict[str, Any]:
    """Edges with self-loops, tiles, and the bytes of both layouts without factors."""
    data = load(name, root, features="synthetic" if name == "Flickr" else None)
    edges = data.edge_index.unique(dim=1)
    adjacency = BitAdjacency.from_edge_index(edges, data.num_nodes, add_self_loops=True)
    tiles = adjacency.frdc()
    if tiles is None:
        raise ValueError(f"frdc_bytes: {name} must hold every edge once")
    return {
        "graph": name, "edges": adjacency.nnz, "tiles": tiles.tiles.numel(),
        "csr": adjacency.rowptr.nbytes + adjacency.indices.nbytes, "frdc": tiles.nbytes,
    }  # fmt: skip


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", help="folder of the data sets")
    parser.add_argument("--output", type=Path, default=Path("frdc_bytes.json"))
    arguments = parser.parse_args()
    found = [sizes(name, arguments.data_root) for name in GRAPHS]
    write_json(arguments.output, {"environment": environment(ROOT), "graphs": found})


if __name__ == "__main__":
    main()
