"""Loads Reddit, or a synthetic graph of its size: statistics, and a frozen binary GraphSAGE."""

from bench.show import reddit_main

if __name__ == "__main__":
    raise SystemExit(reddit_main())
