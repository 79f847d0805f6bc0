"""Times pack, BMM and BSpMM against torch: JSON, table and chart in scripts/results."""

from bitgnn.bench.command import operators_main

if __name__ == "__main__":
    raise SystemExit(operators_main())
