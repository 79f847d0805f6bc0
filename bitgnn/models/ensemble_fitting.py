"""Members of an ensemble trained one after the other: by bagging, or by boosting (SAMME)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from bitgnn._checks import name_type
from bitgnn.models.ensemble import Ensemble, Voting

Make = Callable[[], nn.Module]
Fit = Callable[[nn.Module, Tensor], nn.Module]


def fit_bagging(
    make_model: Make,
    fit: Fit,
    num_samples: int,
    num_members: int = 3,
    *,
    bootstrap: bool = True,
    voting: Voting = "soft",
    seed: int = 0,
) -> Ensemble:
    """An ensemble whose members learn from samples drawn anew, with replacement (Breiman 1996).

    Member m is made and trained with torch's generators seeded by ``seed + m``, which are restored
    afterwards; in ``fit``, ``torch.initial_seed()`` is that number, for code that seeds itself.

    Args:
        make_model: makes one member with fresh weights.
        fit: ``fit(model, sample_weight)`` trains a member and returns it, or another model such as
            ``bitgnn.distill(...).model``. ``sample_weight`` is float32 ``[num_samples]`` on the
            CPU, the number of times that each sample was drawn, a factor of its loss.
        num_samples: number of training samples.
        num_members: number of members.
        bootstrap: draw samples; with False all weigh 1, and members differ only by their seeds,
            which suits few labels.
        voting: of the ensemble.
        seed: of the first member.

    Returns:
        The ensemble, members of equal weights, in evaluation.

    Raises:
        TypeError: ``fit`` returns no module.
        ValueError: fewer than one sample or member.
    """
    _check_counts("fit_bagging", num_samples=num_samples, num_members=num_members)

    def train(number: int) -> nn.Module:
        with _seeded(seed + number):
            weight = torch.ones(num_samples)
            if bootstrap:
                drawn = torch.randint(num_samples, (num_samples,))
                weight = torch.bincount(drawn, minlength=num_samples).float()
            return _fitted("fit_bagging", fit, make_model, weight)

    return Ensemble([train(number) for number in range(num_members)], voting).eval()


def fit_boosting(
    make_model: Make,
    fit: Fit,
    predict: Callable[[nn.Module], Tensor],
    labels: Tensor,
    num_members: int = 3,
    *,
    learning_rate: float = 1.0,
    seed: int = 0,
) -> Ensemble:
    r"""An ensemble whose members learn more from samples that earlier ones got wrong.

    AdaBoost in the form of SAMME (Zhu et al. 2009), with learning rate :math:`\eta`, K classes and
    the weighted share :math:`e_m` of samples that member m gets wrong:

    .. math:: w_m = \eta\,\Big(\log\frac{1 - e_m}{e_m} + \log(K - 1)\Big), \quad
        v_i \leftarrow v_i\,e^{w_m [\hat y_i \ne y_i]}

    A share below half a sample counts as half a sample: members that get all samples right do not
    end the boosting. A member that is no better than chance does, and is left out.

    Args:
        make_model: makes one member with fresh weights.
        fit: as in :func:`fit_bagging`; ``sample_weight`` has mean 1 and the labels' device.
        predict: ``predict(model)`` returns scores ``[n, K]`` of the training samples.
        labels: int64 ``[n]``, their classes.
        num_members: number of members, at most.
        learning_rate: factor of the members' weights.
        seed: of the first member, see :func:`fit_bagging`.

    Returns:
        The ensemble, hard votes weighted by :math:`w_m`, in evaluation.

    Raises:
        TypeError: ``fit`` returns no module, or ``labels`` are not int64.
        ValueError: no samples or members, a learning rate that is not above 0, labels that are no
            classes, scores that are not ``[n, K]``, or a first member no better than chance.
    """
    name = "fit_boosting"
    if not isinstance(labels, Tensor) or labels.dtype != torch.int64:
        raise TypeError(f"{name}: labels must be an int64 tensor, got {name_type(labels)}")
    if labels.dim() != 1:
        raise ValueError(f"{name}: labels must be [n], got {list(labels.shape)}")
    _check_counts(name, labels=labels.numel(), num_members=num_members)
    if not 0 < learning_rate < math.inf:
        raise ValueError(f"{name}: learning_rate must be a number above 0, got {learning_rate}")
    count = labels.numel()
    shares = torch.full((count,), 1 / count, dtype=torch.float64, device=labels.device)
    members: list[nn.Module] = []
    weights: list[float] = []
    for number in range(num_members):
        with _seeded(seed + number):
            model = _fitted(name, fit, make_model, (shares * count).float())
        scores = predict(model.eval())
        if not isinstance(scores, Tensor) or scores.dim() != 2 or len(scores) != count:
            got = list(scores.shape) if isinstance(scores, Tensor) else name_type(scores)
            raise ValueError(f"{name}: predict must return scores [{count}, K], got {got}")
        classes = scores.size(1)
        if classes < 2 or not 0 <= int(labels.min()) <= int(labels.max()) < classes:
            raise ValueError(
                f"{name}: labels must be classes 0 to {classes - 1}, got {int(labels.min())} to "
                f"{int(labels.max())}"
            )
        wrong = scores.argmax(-1).to(labels.device) != labels
        error = float(shares[wrong].sum())
        if error >= 1 - 1 / classes:
            break
        error = max(error, 0.5 / count)
        weight = learning_rate * (math.log((1 - error) / error) + math.log(classes - 1))
        members.append(model)
        weights.append(weight)
        shares = torch.softmax(shares.log() + weight * wrong, 0)
    if not members:
        raise ValueError(
            f"{name}: the first member must be right more often than chance, 1 / {classes}, on "
            f"its training samples, got a share of {1 - error:.4f}"
        )
    return Ensemble(members, "hard", weights).eval()


def _check_counts(name: str, **counts: Any) -> None:
    """Refuse numbers below 1."""
    for key, count in counts.items():
        if type(count) is not int or count < 1:
            raise ValueError(f"{name}: {key} must be 1 or more, got {count!r}")


def _fitted(name: str, fit: Fit, make_model: Make, weight: Tensor) -> nn.Module:
    model = fit(make_model(), weight)
    if not isinstance(model, nn.Module):
        raise TypeError(f"{name}: fit must return the trained model, got {name_type(model)}")
    return model


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed torch's generators, and restore them after the block."""
    # Other GPUs of the machine are not to be woken up.
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield
