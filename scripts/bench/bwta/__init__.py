"""Layers of binary weights and ternary activations against torch."""
