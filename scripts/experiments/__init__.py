"""What the experiments of the papers are made of: accuracy serves reproduce_table3.py.

The files beside it are commands of their own, run as they are.
"""
