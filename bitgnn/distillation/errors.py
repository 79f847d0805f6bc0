"""The error of everything that distill() cannot learn from."""

__all__ = ["DistillError"]


class DistillError(ValueError):
    """Model or data cannot be distilled; the message names what, what it was and must be."""
