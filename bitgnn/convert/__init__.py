"""binarize(): swap a model's layers for binary ones; freeze(): pack a trained binary model."""

from bitgnn.convert.freezing import freeze
from bitgnn.convert.swapping import (
    BinarizeConfig,
    BinarizeReport,
    binarize,
    report_of,
)

__all__ = ["BinarizeConfig", "BinarizeReport", "binarize", "freeze", "report_of"]
