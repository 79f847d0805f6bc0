"""Inputs of binary layers: their statistics, the bits made of them, and products reading these."""
