"""BWTA for whole models: which layers, by which error, swapped and frozen."""

from bitgnn.convert.bwta.errors import output_errors
from bitgnn.convert.bwta.swapping import binarize_bwta, freeze_bwta

__all__ = ["binarize_bwta", "freeze_bwta", "output_errors"]
