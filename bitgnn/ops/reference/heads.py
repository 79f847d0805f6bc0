"""Reference of the heads: what becomes of the scores that end a model."""

from torch import Tensor

__all__ = ["HEADS", "finished"]

HEADS = {"log_softmax": 1, "softmax": 2, "classes": 3}
"""Numbers of the heads in the operators; 0 for none."""


def finished(scores: Tensor, head: int) -> Tensor:
    """Scores ``[N, C]`` with a head.

    Args:
        scores: float32 ``[N, C]``.
        head: 0 for the scores, else of :data:`HEADS`: ``log_softmax`` or ``softmax`` over the
            features, or ``classes``, int64 ``[N]``, the index of the largest score, the first of
            equal ones and the first NaN where there is one.
    """
    if head == HEADS["log_softmax"]:
        return scores.log_softmax(-1)
    if head == HEADS["softmax"]:
        return scores.softmax(-1)
    return scores.argmax(-1) if head == HEADS["classes"] else scores
