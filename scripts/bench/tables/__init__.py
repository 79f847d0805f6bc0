"""Markdown of the records in scripts/results."""
