"""Frozen: what all frozen models have in common, and the report of what freezing did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class FreezeReport:
    """Report of freezing: the form of values between layers, and parts that could not be bits.

    Attributes:
        letters: operator letters of each layer by module name, as frozen.
        boundaries: by module name, what the layer hands on.
        floats: by module or function, why a value in front of a sign, or a part of a binary
            layer, stayed in full precision.
        folded: by module, with which other layers its float linear map was composed, or how it
            changed places with an aggregation; those layers have no float results of their own.
        orders: what comes first, ``"transform_first"`` or ``"aggregate_first"``, in each layer
            whose float maps of features and graph may change places.
        shares: by module, the part of the model's bytes that its floats take.
    """

    letters: Mapping[str, str] = field(default_factory=dict)
    boundaries: Mapping[str, str] = field(default_factory=dict)
    floats: Mapping[str, str] = field(default_factory=dict)
    folded: Mapping[str, str] = field(default_factory=dict)
    orders: Mapping[str, str] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [
            f"{name}: {letters}, hands on {self.boundaries.get(name, 'floats')}"
            for name, letters in self.letters.items()
        ]
        lines += [f"{name}: full precision, {reason}" for name, reason in self.floats.items()]
        lines += [f"{name}: {what}" for name, what in self.folded.items()]
        lines += [
            f"{name}: {100 * n:.1f} % of the bytes, in floats" for name, n in self.shares.items()
        ]
        return "\n".join(lines)

    def description(self) -> dict[str, dict[str, Any]]:
        """Plain values that :meth:`from_description` reads."""
        return {name: dict(value) for name, value in asdict(self).items()}

    @classmethod
    def from_description(cls, description: Any) -> FreezeReport:
        """The inverse; a ``ValueError`` where an entry is missing or no mapping of strings."""
        names = {"letters", "boundaries", "floats"}
        # Reports of earlier versions know of nothing folded or ordered.
        later = {"folded", "orders", "shares"}
        if not isinstance(description, dict) or description.keys() - later != names:
            raise ValueError(f"a report must have the entries {sorted(names)}")
        for entry, part in description.items():
            kind = float if entry == "shares" else str
            if not isinstance(part, dict) or not all(
                isinstance(name, str) and isinstance(value, kind) for name, value in part.items()
            ):
                raise ValueError("the entries of a report must map strings to strings or shares")
        return cls(**description)


def each_once(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors by their first names, and which first name stands for each further one."""
    kept: dict[str, Tensor] = {}
    shared: dict[str, str] = {}
    first: dict[tuple[Any, ...], str] = {}
    for name, tensor in state.items():
        key = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
        if tensor.numel() and key in first:
            shared[name] = first[key]
        else:
            first[key] = name
            kept[name] = tensor
    return kept, shared


def under_all_names(tensors: Mapping[str, Tensor], shared: Mapping[str, str]) -> dict[str, Tensor]:
    """The inverse of :func:`each_once`."""
    return {**tensors, **{name: tensors[other] for name, other in shared.items()}}


def float_bytes_of(model: nn.Module) -> dict[str, int]:
    """Bytes of the modules that hold tensors, what is inside of others or frozen left out."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    frozen: list[str] = []
    for name, module in model.named_modules():
        if isinstance(module, Frozen):
            frozen.append(f"{name}.")
        if f"{name}.".startswith(tuple(frozen)):
            continue
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        size = sum(tensor.nbytes for tensor in own if tensor.data_ptr() not in seen)
        seen |= {tensor.data_ptr() for tensor in own}
        if size:
            owner = next((o for o in found if name.startswith(f"{o}.")), name)
            found[owner] = found.get(owner, 0) + size
    return found


class Frozen(nn.Module):
    """Base of frozen models, which :func:`bitgnn.freeze` and :func:`bitgnn.load` make.

    Each is called as the trained model was, stays in evaluation, has no parameters to train and
    records no gradients; what it returns may feed a head that is trained. It moves between devices
    with ``to`` and keeps the types of whatever decides bits.

    Attributes:
        kind: name of its form in checkpoints.
        report: what freezing did.
    """

    kind: str
    report: FreezeReport

    def train(self, mode: bool = True) -> Self:
        """Nothing: a frozen model stays in evaluation."""
        return super().train(False)

    def __prepare_scriptable__(self) -> Any:
        """Refuse ``torch.jit.script``, whose own message names an annotation."""
        raise RuntimeError(
            f"{type(self).__name__}: TorchScript does not compile frozen models; use torch.export "
            "or torch.compile with a prepared graph"
        )

    @property
    def letters(self) -> tuple[str, ...]:
        """Operator letters of each packed layer, in order."""
        return tuple(self.report.letters.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors; what several names share counts once."""
        return sum(tensor.nbytes for tensor in each_once(self.state_dict())[0].values())

    def float_bytes(self) -> dict[str, int]:
        """Bytes of what is not packed, by layer or module."""
        return {}

    def description(self) -> dict[str, Any]:
        """Everything but the tensors, as plain values: what a checkpoint's JSON holds."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """Packed layers and bytes."""
        return f"packed_layers={len(self.letters)}, nbytes={self.nbytes}"
