"""Runs PyG's own tests of GCNConv, SAGEConv and GraphConv against bitgnn's layers."""

from bitgnn.bench.pyg_tests import main

if __name__ == "__main__":
    raise SystemExit(main())
