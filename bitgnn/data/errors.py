"""The error of missing, unreadable or unfit data."""

__all__ = ["DataError"]


class DataError(RuntimeError):
    """A data set is missing or unreadable; the message says what belongs where."""
