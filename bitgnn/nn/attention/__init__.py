"""Attention on ternary queries, keys and values, by itself and in the place of its float forms."""
