"""Traces of forwards with torch.fx, and what their arguments are."""
