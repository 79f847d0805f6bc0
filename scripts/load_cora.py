"""Loads Cora: prints its statistics and times a frozen binary GCN on it."""

from bench.show import cora_main

if __name__ == "__main__":
    raise SystemExit(cora_main())
