"""Random arguments of the operators of looked-up products in training."""

from typing import Any

from draws import Draws

__all__ = ["LOOKED_UP", "LookedUpArguments"]

LOOKED_UP = ("activation_bits", "fold_weight", "straight_through")


class LookedUpArguments(Draws):
    """Arguments of packing weights and activations, and of gradients."""

    def _looked_up_arguments(
        self, name: str, n: int, k: int, optional: bool | None
    ) -> dict[str, Any]:
        def take(value: Any) -> Any:
            taken = bool(self.integer(2)) if optional is None else optional
            return value if taken else None

        x = self.matrix(n, k)
        if name == "fold_weight":
            parts = 2 if n and n % 2 == 0 else 1
            offset = take((self.floats(k) * 2**16).round() / 2**16)
            log_gain = take(self.floats(parts))
            return {
                "weight": x, "unit": self.positive(), "offset": offset, "log_gain": log_gain,
                "step": (0.5, 1.0)[self.integer(2)], "zero_one": bool(self.integer(2)),
            }  # fmt: skip
        if name == "activation_bits":
            return {"x": x, "threshold": 0.5, "factor": 0.3}
        window, scale = take(self.positive()), take(self.floats(n))
        return {
            "grad": self.matrix(n, k), "x": x, "window": window, "scale": scale, "slope": 1.5
        }  # fmt: skip
