"""Operators beside torch and beside what the machine can do."""
