"""Roles of binary layers: what each reads and what reads it, found by one pass of the model."""
