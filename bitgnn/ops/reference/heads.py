"""Reference of the heads: what becomes of the scores that end a model."""

from torch import Tensor


def finished(scores: Tensor, head: int) -> Tensor:
    """Scores ``[N, C]`` with a head.

    Args:
        scores: float32 ``[N, C]``.
        head: 0 for the scores, 1 for ``log_softmax``, 2 for ``softmax`` over the features, 3 for
            int64 ``[N]``, the index of the largest score, the first of equal ones and the first NaN
            where there is one.
    """
    if head == 1:
        return scores.log_softmax(-1)
    if head == 2:
        return scores.softmax(-1)
    return scores.argmax(-1) if head == 3 else scores
