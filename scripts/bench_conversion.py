"""Times the conversion of a float model to a frozen binary one: JSON in scripts/results."""

from bitgnn.bench.conversion import conversion_main

if __name__ == "__main__":
    raise SystemExit(conversion_main())
