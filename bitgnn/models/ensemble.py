"""Ensemble: several networks whose class scores are joined by votes, on one device or on ranks."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist
from torch import Tensor, fx, nn

Voting = Literal["soft", "hard"]

STEPS = 2**50
"""Sum of the members' weights as integers, at most: sums of votes up to 2**53 are exact in float64,
so that they are equal in any order and on any number of ranks."""
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Ensemble(nn.Module):
    r"""Networks with the same arguments and classes whose scores are joined (BENN, Zhu 2019).

    With weights :math:`w_m` of sum 1 and scores :math:`s_m` of member m, evaluation gives

    * ``"soft"``: :math:`\log \sum_m w_m\,\mathrm{softmax}(s_m)`, logarithms of mean probabilities,
      which stand for logits wherever a loss or a teacher needs them;
    * ``"hard"``: :math:`\sum_m w_m\,[\arg\max s_m = c]`, the share of the votes that class c gets.
      A member votes for the first of equal scores; among equal shares ``argmax`` takes the first.

    In training both give the soft scores, since votes have no gradient; an ensemble begins in
    training where a member is. In evaluation votes are integers, whose sums are exact, so that
    scores are the same on any number of ranks.

    It takes the arguments that its members take, and is one model to :func:`bitgnn.binarize`,
    :func:`bitgnn.distill`, :func:`bitgnn.freeze` and :func:`bitgnn.tune`: a frozen ensemble is one
    program with all members in it, which a CUDA graph captures as a whole. Members may be frozen
    models, too.

    Args:
        members: one module or more, each of which returns scores ``[N, C]`` with C >= 2.
        voting: ``"soft"`` or ``"hard"``.
        weights: a number for each member, not negative, such as the accuracies of members or the
            weights of boosting; None weighs all alike.

    Attributes:
        members: those of this rank.
        num_members: number of members on all ranks.
        voting: as above; may be set anew.

    Raises:
        TypeError: a member is no module.
        ValueError: no member, members that take other arguments than the first, an unknown voting,
            or weights that are no finite numbers >= 0, one for each member, with one above 0.
    """

    units: Tensor
    total: Tensor

    def __init__(
        self,
        members: Iterable[nn.Module],
        voting: Voting = "soft",
        weights: Sequence[float] | Tensor | None = None,
    ) -> None:
        super().__init__()
        members = list(members)
        if voting not in get_args(Voting):
            raise ValueError(f"Ensemble: voting must be one of {get_args(Voting)}, got {voting!r}")
        self._signature = _common_signature(members)
        self.members = nn.ModuleList(members)
        self.num_members = len(members)
        self.voting: Voting = voting
        self.is_sharded = False
        units = _units(weights, len(members))
        known = next(itertools.chain(self.parameters(), self.buffers()), units)
        # Integers, which .half() leaves alone.
        self.register_buffer("units", units.to(known.device))
        self.register_buffer("total", units.sum().to(known.device))
        self.training = any(member.training for member in members)
        know_forms = all(hasattr(member, "with_precision") for member in members)
        self.__class__ = _class_taking(self._signature, know_forms)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Joined scores; the signature of an ensemble is that of its members.

        Returns:
            ``[N, C]`` float32, logarithms of probabilities or shares of votes.

        Raises:
            TypeError: a member returns something else than a tensor.
            ValueError: members return scores of different shapes, or none of ``[N, C]``, C >= 2.
            RuntimeError: a sharded ensemble is in training.
        """
        return self._joined(*args, **kwargs)

    def _joined(self, *args: Any, **kwargs: Any) -> Tensor:
        if self.is_sharded and self.training:
            raise RuntimeError(
                "Ensemble: a sharded ensemble must be in evaluation, call eval(); in training no "
                "gradient passes between ranks"
            )
        scores = [member(*args, **kwargs) for member in self.members]
        if scores:
            _check_scores(scores)
        if self.training:
            weights = self.weights.float().view(-1, 1, 1)
            logs = torch.stack(scores).float().log_softmax(-1) + weights.log()
            return logs.logsumexp(0)
        votes = self._votes(torch.stack(scores)) if scores else None
        if self.is_sharded:
            votes = self._summed_over_ranks(votes)
        assert votes is not None, "an ensemble that is not sharded has members"
        if self.voting == "hard":
            return (votes / self.total).float()
        # At least one step, so that losses stay finite.
        return (votes.clamp(min=1.0) / self.total).log().float()

    def _votes(self, scores: Tensor) -> Tensor:
        """Weighted votes ``[N, C]`` of scores ``[M, N, C]``: integers in float64."""
        units = self.units.view(-1, 1, 1)
        if self.voting == "soft":
            return (scores.double().softmax(-1) * units).round().sum(0)
        choice = scores.argmax(-1, keepdim=True)
        ballots = torch.zeros_like(scores, dtype=torch.float64).scatter(-1, choice, 1.0)
        return (ballots * units).sum(0)

    def _summed_over_ranks(self, votes: Tensor | None) -> Tensor:
        """Votes of all ranks; one without members has the shape of the first one's."""
        if self.num_members < dist.get_world_size():
            device = self.units.device if votes is None else votes.device
            shape = torch.tensor([0, 0] if votes is None else list(votes.shape), device=device)
            dist.broadcast(shape, 0)
            if votes is None:
                votes = torch.zeros(*shape.tolist(), dtype=torch.float64, device=device)
        assert votes is not None
        dist.all_reduce(votes)
        return votes

    def shard(self) -> Ensemble:
        """Keep only this rank's members, in place: numbers rank, rank + world, ...

        Each rank then calls the ensemble with the same inputs, and all get the same joined scores,
        by one all-reduce of ``[N, C]`` float64. With more ranks than members, those without one
        learn the shape from a broadcast before it. Freeze the members first::

            dist.init_process_group("nccl")
            ensemble = Ensemble(map(bitgnn.freeze, ensemble.members), "hard").shard().cuda()

        Returns:
            This ensemble.

        Raises:
            RuntimeError: ``torch.distributed`` has no process group, or it is sharded already.
        """
        if self.is_sharded:
            raise RuntimeError("Ensemble.shard: the ensemble is sharded already")
        if not dist.is_available() or not dist.is_initialized():
            raise RuntimeError(
                "Ensemble.shard: torch.distributed must have a process group, call "
                "torch.distributed.init_process_group() first"
            )
        own = range(dist.get_rank(), self.num_members, dist.get_world_size())
        self.members = nn.ModuleList(self.members[number] for number in own)
        self.units = self.units[list(own)]
        self.is_sharded = True
        return self

    @property
    def weights(self) -> Tensor:
        """``[M]`` float64: parts that the members of this rank have in the votes of all."""
        return self.units.double() / self.total

    def extra_repr(self) -> str:
        """Voting, and the weights where they differ."""
        weights = [round(float(weight), 4) for weight in self.weights]
        shown = f", weights={weights}" if len(set(weights)) > 1 else ""
        return f"voting={self.voting!r}{shown}"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _blank, (self._signature, isinstance(self, _OfModels)), self.__dict__


class _OfModels(Ensemble):
    """Ensemble whose members know their own binary forms, as those of ``bitgnn.models`` do."""

    @property
    def precision(self) -> str:
        """Precisions of the members."""
        members: Any = self.members
        return "; ".join(dict.fromkeys(member.precision for member in members))

    def with_precision(self, precision: Any) -> Ensemble:
        """A copy whose members have the same weights in another precision."""
        members: Any = self.members
        changed = [member.with_precision(precision) for member in members]
        return Ensemble(changed, self.voting, self.units).train(self.training)


def _check_scores(scores: Sequence[Any]) -> None:
    """Refuse scores that cannot be joined; a trace has none."""
    first = scores[0]
    if isinstance(first, fx.Proxy):
        return
    for number, one in enumerate(scores):
        if not isinstance(one, Tensor):
            raise TypeError(
                f"Ensemble: members must return a tensor [N, C], member {number} returned "
                f"{type(one).__name__}"
            )
        if one.dim() != 2 or one.size(1) < 2:
            raise ValueError(
                f"Ensemble: members must return scores [N, C] of two classes or more, member "
                f"{number} returned {list(one.shape)}"
            )
        if one.shape != first.shape:
            raise ValueError(
                f"Ensemble: members must return scores of one shape, member {number} returned "
                f"{list(one.shape)}, member 0 {list(first.shape)}"
            )


def _units(weights: Sequence[float] | Tensor | None, count: int) -> Tensor:
    """Weights ``[count]`` as int64, in the ratios of the given ones; integers exactly so."""
    numbers = [1.0] * count if weights is None else weights
    given = torch.as_tensor(numbers, dtype=torch.float64, device="cpu").detach()
    if given.shape != (count,):
        raise ValueError(
            f"Ensemble: weights must have one number for each of {count} members, got shape "
            f"{list(given.shape)}"
        )
    total = float(given.sum())
    if not math.isfinite(total) or bool((given < 0).any()) or total == 0:
        raise ValueError(
            "Ensemble: weights must be finite numbers >= 0 with one above 0 and a finite sum, got "
            f"{given.tolist()}"
        )
    steps = STEPS / total
    return (given * (math.floor(steps) if steps >= 1 else steps)).round().long()


def _common_signature(members: Sequence[Any]) -> inspect.Signature:
    """Signature of the members' forwards without annotations."""
    if not members:
        raise ValueError("Ensemble: members must hold a module or more, got none")
    found = []
    for number, member in enumerate(members):
        if not isinstance(member, nn.Module):
            got = member.__name__ if inspect.isclass(member) else type(member).__name__
            raise TypeError(f"Ensemble: members must be torch.nn.Modules, member {number} is {got}")
        parameters = inspect.signature(member.forward).parameters.values()
        empty = inspect.Parameter.empty
        found.append(inspect.Signature([p.replace(annotation=empty) for p in parameters]))
        if list(found[-1].parameters) != list(found[0].parameters):
            raise ValueError(
                f"Ensemble: members must take the same arguments, member {number} takes "
                f"{found[-1]}, member 0 {found[0]}"
            )
    return found[0]


def _class_taking(signature: inspect.Signature, know_forms: bool) -> type[Ensemble]:
    """Ensemble whose forward names its arguments, for traces and for calls by name.

    ``know_forms`` says that members change their precision as a whole.
    """
    base = _OfModels if know_forms else Ensemble
    parameters = signature.parameters.values()
    if any(parameter.kind not in NAMED for parameter in parameters):
        return base
    scope: dict[str, Any] = {"__name__": __name__}
    taken, passed = ["self"], []
    for number, parameter in enumerate(parameters):
        default = ""
        if parameter.default is not parameter.empty:
            scope[f"_default_{number}"] = parameter.default
            default = f"=_default_{number}"
        is_keyword = parameter.kind is parameter.KEYWORD_ONLY
        if is_keyword and "*" not in taken:
            taken.append("*")
        taken.append(f"{parameter.name}{default}")
        passed.append(f"{parameter.name}={parameter.name}" if is_keyword else parameter.name)
    exec(f"def forward({', '.join(taken)}): return self._joined({', '.join(passed)})", scope)
    scope["forward"].__doc__ = Ensemble.forward.__doc__
    return type("Ensemble", (base,), {"forward": scope["forward"]})


def _blank(signature: inspect.Signature, know_forms: bool) -> Ensemble:
    """An ensemble without state, for copies and pickles."""
    kind = _class_taking(signature, know_forms)
    return kind.__new__(kind)
