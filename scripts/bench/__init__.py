"""What the benchmark commands in scripts/ are made of: cases, contenders, ceilings, tables."""
