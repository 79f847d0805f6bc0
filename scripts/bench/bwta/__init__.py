"""Layers of binary weights and ternary activations beside torch."""
