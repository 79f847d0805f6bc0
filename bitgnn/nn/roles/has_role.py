"""Roles of layers of named precision: what they read, what reads them, and the letters of both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bitgnn.nn.host_state import HostState
from bitgnn.nn.inputs.input_bits import InputBits, InputKind
from bitgnn.nn.inputs.looked_up_products import LookedUpProducts
from bitgnn.nn.precision import (
    Form,
    LayerPrecision,
    Role,
    chosen_precision,
    named_forms,
)
from bitgnn.nn.roles.waiting import watch

ROLES: dict[Role, tuple[bool, bool]] = {
    "first": (False, True),
    "inner": (True, True),
    "last": (True, False),
    "only": (False, False),
}
"""By role: True if the layer reads binary layers' results, and if one reads its own."""
STEPS = 4
"""Recorded training forwards after which the role stays: a dry run or two decides nothing."""


class HasRole(LookedUpProducts):
    """Mixin of layers that may have a role among binary ones.

    ``letters``, the precision in use, follow from the role and the form of the input where the
    precision was given by name. ``root_bits`` are those of the destinations of a bipartite graph,
    where they are other features.
    """

    input_bits: InputBits | None
    node_dim: int
    hidden_quantizer: nn.Module | None
    hidden_norm: nn.Module | None
    root_norm: nn.Module | None
    feeds: Tensor
    steps: Tensor
    _buffers: dict[str, Any]
    least_below = 0.05
    """Share of an activation that must not be above 0, for its bits to be of use."""
    waits_for_model = False
    """True until the model around the layer, if there is one, has told the roles."""

    def _choose_precision(
        self, precision: str | LayerPrecision | None, role: Role | None = None
    ) -> None:
        """Settle the letters, before PyG's constructor runs."""
        precision = chosen_precision(precision)
        self._precision_name = precision if isinstance(precision, str) else None
        self._forms = self._named_forms(precision)
        self._seen = {}
        self._letters = (
            LayerPrecision.parse(precision) if self._forms is None else self._forms["last"]
        )
        if role is not None:
            self._check_role(role)
        self._asked_role = role

    def _named_forms(self, precision: str | LayerPrecision) -> dict[Form, LayerPrecision] | None:
        """The forms of a precision given by name."""
        return named_forms(precision)

    @property
    def ends_in_floats(self) -> bool:
        """True for a layer that stays in floats where no other layer reads its result."""
        return self._forms is not None and self._forms["last"].is_float

    def _check_role(self, role: Any) -> None:
        if role not in ROLES:
            raise ValueError(
                f"{type(self).__name__}: role must be one of {tuple(ROLES)}, got {role!r}"
            )
        if self._forms is None:
            raise ValueError(
                f"{type(self).__name__}: role must be None where letters say what the layer reads "
                f"and hands on, got {role!r} beside precision {str(self._letters)!r}"
            )

    def _add_inputs(self, in_channels: int | tuple[int, int], is_apart: bool) -> None:
        """Create the statistics of the inputs and what remembers the role."""
        kinds = self._letters if self._forms is None else self._forms["hidden"]
        owner, looks_up = type(self).__name__, kinds.looks_up
        sizes = (in_channels, in_channels) if isinstance(in_channels, int) else in_channels
        rows = self._letters.takes_rows and self._forms is None
        self.input_bits = InputBits(owner, sizes[0], rows) if looks_up else None
        self.root_bits = InputBits(owner, sizes[1], rows) if looks_up and is_apart else None
        self.gain_level = nn.Parameter(torch.zeros(1)) if looks_up else None
        self.root_gain_level = self.root_norm = None
        if self._forms is not None:
            module: Any = self
            # Above 0 where a binary layer reads the result, below 0 where something else does;
            # forwards in training that recorded gradients, as far as they are counted.
            for name in ("feeds", "steps"):
                module.register_buffer(name, torch.zeros((), dtype=torch.float32))
            self._state = HostState()
            self._fed = False
        self._begin()

    def _begin(self) -> None:
        """Forget inputs and role, but for a role given to the constructor."""
        for bits in (self.input_bits, self.root_bits):
            if bits is not None:
                bits.reset_parameters()
        if self._forms is not None:
            with torch.no_grad():
                self.feeds.zero_()
                self.steps.zero_()
            if self._asked_role is not None:
                self._take_role(self._asked_role)
        if self.input_bits is not None:
            watch.add(self)  # given letters, too, need the share that dropout in front keeps

    @property
    def has_role(self) -> bool:
        """True if the precision is a name, so that the letters follow from the role."""
        return self._forms is not None

    @property
    def is_trained(self) -> bool:
        """True after the first steps of training; the role no longer changes."""
        return self._steps_seen >= STEPS

    @property
    def is_settling(self) -> bool:
        """True in the first steps of training, in which the role may change."""
        return 0 < self._steps_seen < STEPS

    @property
    def _steps_seen(self) -> float:
        return 0.0 if self._forms is None else self._numbers()[1]

    @property
    def is_past_settling(self) -> bool:
        """True after the first steps of training, when a pass over the model reveals nothing new.

        Layers whose letters are given count no steps; theirs ends with the first batch.
        """
        if self._forms is not None:
            return self.is_trained
        return self.input_bits is None or self.input_bits.host_count > 0

    @property
    def role(self) -> Role | None:
        """Position among binary layers; None while it is unknown.

        ``"first"`` reads features and a binary layer reads its result, ``"inner"`` stands between
        binary layers, ``"last"`` reads the result of one, ``"only"`` does neither.
        """
        if self._forms is None or self.input_bits is None:
            return None
        feeds, reads = self._numbers()[0], self.input_bits.reads_known
        if reads == 0.0:
            return None
        found = (reads > 0, feeds > 0)
        return next(role for role, facts in ROLES.items() if facts == found)

    def set_role(self, role: Role | Literal["hidden"]) -> None:
        """Set by hand what the layer reads and what reads its result.

        Layers of named precisions find it in the first training batch; this is for those who know.
        ``"hidden"`` says only that a binary layer reads the result. Layers whose letters are given
        ignore it.

        Raises:
            ValueError: there is no such role, or the layer was trained in another one.
        """
        if self._forms is None:
            return
        if role == "hidden":
            self.tell_read_by_binary()
            return
        self._check_role(role)
        if self.is_trained and self.role not in (None, role):
            raise ValueError(
                f"{type(self).__name__}: role must stay {self.role!r}, in which the layer was "
                f"trained, got {role!r}; reset_parameters() begins anew"
            )
        self._asked_role = role
        self._take_role(role)

    def _take_role(self, role: Role) -> None:
        reads, feeds = ROLES[role]
        with torch.no_grad():
            self.feeds.fill_(1.0 if feeds else -1.0)
        for bits in (self.input_bits, self.root_bits):
            if bits is not None:
                bits.set_reads(reads)

    def tell_read_by_binary(self) -> None:
        """Note that a binary layer reads the result; a trained layer stays as it is."""
        if self._forms is not None and self._asked_role is None and not self.is_trained:
            with torch.no_grad():
                self.feeds.fill_(1.0)

    def tell_source(self, bits: InputBits, reads_bits: bool, kept: float, form: float) -> None:
        """Note where an input comes from: see :func:`bitgnn.nn.roles.settling.settle`."""
        if self.is_past_settling:
            return
        if self._asked_role is None and self._forms is not None:
            bits.set_reads(reads_bits)
            with torch.no_grad():
                if float(self.feeds) == 0.0:
                    self.feeds.fill_(-1.0)
        bits.set_kept(kept)
        if not reads_bits:
            bits.form.fill_(form)

    def note_state(self) -> None:
        """Read kinds and letters, which compilers take as they were read last."""
        for bits in (self.input_bits, self.root_bits):
            if bits is not None:
                bits.kind  # noqa: B018
        self.letters  # noqa: B018

    @property
    def letters(self) -> LayerPrecision:
        """Precision in use, by the buffers as they are now.

        A forward reads it where it begins and where it may have changed; in between it uses
        ``_letters``.
        """
        if self._forms is None or torch.compiler.is_compiling():
            return self._letters
        bits: Any = vars(self)["_modules"].get("input_bits")
        if bits is None:
            return self._letters
        held = self._buffers
        feeds, _ = self._state.read(held["feeds"], held["steps"]) or (0.0, 0.0)
        found = self._forms[self._form(feeds > 0, bits.kind)]
        if found is not self._letters:
            self._letters = found
        return found

    @property
    def _may_settle(self) -> bool:
        """True where a forward in training may tell the role more, by the state read last.

        A compiled one always counts its steps.
        """
        if self._forms is None or torch.compiler.is_compiling():
            return self._forms is not None or self.waits_for_model
        held = self._state.values
        return held is None or held[1] < STEPS

    @property
    def _feeds_bits(self) -> bool:
        """True where a binary layer is known to read the result."""
        if self._forms is None or self.input_bits is None:
            return False
        return self._numbers()[0] > 0

    def _numbers(self) -> list[float]:
        """``feeds`` and ``steps``, for which a GPU is asked only after a write."""
        held = self._buffers
        return self._state.read(held["feeds"], held["steps"]) or [0.0, 0.0]

    def _form(self, feeds_bits: bool, kind: InputKind | None) -> Form:
        if kind in ("rows", None):
            return "hidden_rows" if feeds_bits else "last_rows"
        if feeds_bits and kind == "pattern":
            # No more bits than outputs.
            linear: Any = next(iter(self._products()))
            if 0 <= linear.in_channels <= linear.out_channels:  # -1 before the first input
                return "few_bits"
        return "hidden" if feeds_bits else "last"

    @property
    def _norm(self) -> Any:
        """The norm after the product, if the letters of the role have one."""
        return None if self._letters.hidden_norm is None else self.hidden_norm

    def _products(self) -> Iterable[nn.Module]:
        raise NotImplementedError
