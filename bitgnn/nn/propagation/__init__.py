"""Layers that propagate over the graph: polynomials of the adjacency, and plain reductions."""
