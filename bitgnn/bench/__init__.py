"""Benchmarks: cases, contenders and tables used by the files in scripts/."""
