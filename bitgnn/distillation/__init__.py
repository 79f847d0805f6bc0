"""distill(): a binary model taught by a float one, by one recipe for all models and data."""

from bitgnn.distillation.calling import DistillError
from bitgnn.distillation.recipe import DistillRecipe
from bitgnn.distillation.result import Distilled
from bitgnn.distillation.teaching import distill

__all__ = ["DistillError", "DistillRecipe", "Distilled", "distill"]
