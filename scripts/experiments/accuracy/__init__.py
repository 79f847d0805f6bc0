"""Accuracy tables on graphs: the experiments of each, its record and its command."""
