"""BWTA for whole models: which layers, by which error, swapped and frozen."""

from bitgnn.convert.bwta.freezing import freeze_bwta, has_bwta
from bitgnn.convert.bwta.layers import output_errors
from bitgnn.convert.bwta.swapping import binarize_bwta

__all__ = ["binarize_bwta", "freeze_bwta", "has_bwta", "output_errors"]
