"""Layers of a model swapped for binary ones: graphs, images, and what a swap must keep."""
