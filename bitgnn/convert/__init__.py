"""binarize(): swap layers for binary ones; freeze(): pack a trained model; summary(): a table."""

from bitgnn.convert.binarizing import binarize
from bitgnn.convert.bwta import output_errors
from bitgnn.convert.configs import BWTAConfig, GraphConfig, ImageConfig
from bitgnn.convert.freezing import freeze
from bitgnn.convert.layer_summary import summary
from bitgnn.convert.plan import ModelShape, Plan
from bitgnn.convert.reporting import BinarizeReport, LayerReport, report_of
from bitgnn.convert.summary_table import LayerSummary, Summary

__all__ = [
    "BWTAConfig",
    "BinarizeReport",
    "GraphConfig",
    "ImageConfig",
    "LayerReport",
    "LayerSummary",
    "ModelShape",
    "Plan",
    "Summary",
    "binarize",
    "freeze",
    "output_errors",
    "report_of",
    "summary",
]
