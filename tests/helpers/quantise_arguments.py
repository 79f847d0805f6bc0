"""Random arguments of the operators that round in training."""

from typing import Any

from draws import Draws

QUANTISE = ("round_levels", "clip_gradients", "shift_signs", "centre_gradients", "scale_sums")


class QuantiseArguments(Draws):
    """Arguments of rounding and of its gradients."""

    def _quantise_arguments(self, name: str, n: int, k: int) -> dict[str, Any]:
        """Values around the levels, halves among them."""
        x = self.matrix(n, k)
        if name == "shift_signs":
            return {"weight": x}
        if name == "centre_gradients":
            return {"grad": x, "factor": self.positive()}
        if name == "scale_sums":
            scales = {"scale": self.positive(), "weight_scale": self.positive()}
            return {"sums": x, **scales, **({"bias": self.floats(k)} if self.integer(2) else {})}
        level = 1 + self.integer(4)
        lowest = -level if self.integer(2) else 0
        given = {"x": x, "scale": self.positive(), "lowest": lowest, "highest": level}
        if name == "round_levels":
            return given
        more = {"gain": self.positive(), "sign": bool(self.integer(2))} if self.integer(2) else {}
        return {"grad": self.matrix(n, k), **given, **more}
