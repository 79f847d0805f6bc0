"""Attention: GAT and transformer layers over graphs, BWTA on ternary queries, keys and values."""
