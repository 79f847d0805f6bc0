"""Names of types in error messages."""


def name_type(value: object) -> str:
    """The type of ``value`` as an error message names it: ``torch.int64 tensor``, ``str``."""
    dtype = getattr(value, "dtype", None)
    return type(value).__name__ if dtype is None else f"{dtype} {type(value).__name__}"
