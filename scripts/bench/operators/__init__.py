"""Operators against torch and the machine's ceilings."""
