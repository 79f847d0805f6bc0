"""Times ways to multiply packed rows on the GPU at hand (needs nvcc): JSON in scripts/results."""

from bitgnn.bench.products import products_main

if __name__ == "__main__":
    raise SystemExit(products_main())
