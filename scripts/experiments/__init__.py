"""Experiments that the results rest on: what their commands are made of."""
