"""Trained parameters of binary networks as documented files, for this package and others."""

from bitgnn.exchange.parameters import export_parameters, import_parameters

__all__ = ["export_parameters", "import_parameters"]
