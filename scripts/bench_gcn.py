"""Times frozen binary GCNs against PyG's GCN: JSON, table and chart in scripts/results."""

from bitgnn.bench.command import gcn_main

if __name__ == "__main__":
    raise SystemExit(gcn_main())
