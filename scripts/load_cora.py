"""Loads Cora: prints its statistics and times a frozen binary GCN on it."""

from bitgnn.data.show import cora_main

if __name__ == "__main__":
    raise SystemExit(cora_main())
