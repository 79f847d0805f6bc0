"""Layers whose precision has a name: they look up their input's bits and find their role."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from bitgnn.nn.aggregation import IntegerProduct
from bitgnn.nn.input_bits import KINDS, InputBits, InputKind
from bitgnn.nn.looked_up_products import MATRIX, LookedUpProducts
from bitgnn.nn.precision import LayerPrecision, Role, chosen_precision, named_forms
from bitgnn.nn.roles import found_producers, leave_mark
from bitgnn.ops.reference.pairs import MAX_NARROW_SIZE
from bitgnn.quantize.looked_up_linear import output_affine

ROLES: tuple[Role, ...] = ("hidden", "last")
FEATURES: tuple[InputKind, ...] = ("pattern", "thermometer")
"""Kinds of inputs that the data gives."""
GAINS = ("gain_level", "root_gain_level")
"""Parameters of gains."""
OWN = ("input_bits", "root_bits", "hidden_norm", "root_norm", *GAINS, "role_code")
"""Names of what a layer of named precision has beside PyG's; a checkpoint of PyG lacks them."""


class LooksUp(LookedUpProducts):
    """Mixin of layers whose product takes bits looked up from the data.

    ``letters``, the precision in use, follow the role where the precision was given by name; a
    role of None, as long as no binary layer is known to take the result, has the last one's form.
    ``root_bits`` are those of the destinations of a bipartite graph, where they are other features.
    """

    role: Role | None
    role_code: Tensor
    input_bits: InputBits | None
    node_dim: int
    hidden_quantizer: nn.Module | None
    hidden_norm: nn.Module | None
    root_norm: nn.Module | None

    def _choose_precision(self, precision: str | LayerPrecision | None) -> None:
        """Settle the letters, before PyG's constructor runs."""
        precision = chosen_precision(precision)
        self._precision_name = precision if isinstance(precision, str) else None
        self._forms = named_forms(precision)
        self.role = None
        self._seen = {}
        self.letters = (
            LayerPrecision.parse(precision) if self._forms is None else self._forms["last"]
        )

    def _add_inputs(self, is_pair: bool) -> None:
        """Create what looks up the input and remembers the role."""
        owner, looks_up = type(self).__name__, self.letters.looks_up
        self.input_bits = InputBits(owner) if looks_up else None
        self.root_bits = InputBits(owner) if looks_up and is_pair else None
        self.gain_level = nn.Parameter(torch.zeros(1)) if looks_up else None
        self.root_gain_level = None
        if self._forms is not None:
            code = torch.tensor(0, dtype=torch.int8)
            self.register_buffer("role_code", code)  # type: ignore[attr-defined]
        self._has_looked = False

    @property
    def has_role(self) -> bool:
        """Whether the precision is a name, so that the letters follow from the role."""
        return self._forms is not None

    def set_role(self, role: Role) -> None:
        """Say whether a binary layer takes the result; only where the precision is a name.

        Layers find their role in the first forward with gradients; this is for those who know.

        Raises:
            ValueError: there is no such role.
        """
        if role not in ROLES:
            raise ValueError(f"{type(self).__name__}: role must be one of {ROLES}, got {role!r}")
        if self._forms is not None and role != self.role:
            self.role = role
            self._settle_letters()
            self.role_code.fill_(1 + ROLES.index(role))

    def _settle_letters(self, kind: InputKind | None = None) -> None:
        """Letters of the role and of the input's kind (None: what its bits tell) by a name."""
        if self._forms is None:
            return
        if kind is None and self.input_bits is not None:
            kind = self.input_bits.kind
        few = False
        if self.role == "hidden" and kind in FEATURES:
            # No more bits than outputs.
            weight: Any = next(iter(self._products())).weight
            few = not is_uninitialized_parameter(weight) and weight.size(1) <= weight.size(0)
        self.letters = self._forms["few_bits" if few else self.role or "last"]

    @property
    def _norm(self) -> Any:
        """The norm behind the product, where the letters of the role have one."""
        return None if self.letters.hidden_norm is None else self.hidden_norm

    def _ready(self, linear: Any, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _products(self) -> Iterable[nn.Module]:
        raise NotImplementedError

    def _look(self, x: Tensor, bits: InputBits | None, *linears: Any) -> None:
        """Before the product: find the layers in front, and what the input is made of."""
        if self._has_looked and (bits is None or bits.is_settled):
            return
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return
        # An input of another width is refused before it settles anything.
        for linear in linears:
            self._ready(linear, x)
        self._tell_producers(x)
        self._has_looked = True
        if bits is not None and not bits.is_settled:
            bits.look_up(x.reshape(-1, x.size(-1)))
            if bits.kind == "thermometer":
                for linear in linears:
                    # One weight for each bit, drawn anew: bits of one feature that begin alike
                    # learn less.
                    held = self._ready(linear, x)
                    size = bits.columns.numel()
                    drawn = held.data.new_empty(held.size(0), size)
                    held.data = drawn.normal_(std=1 / math.sqrt(size))
            self._settle_letters()

    def _tell_producers(self, x: Tensor) -> None:
        """Let the layers that made ``x`` know, once, that a binary one takes it."""
        if not self._has_looked and x.requires_grad and not torch.compiler.is_compiling():
            for producer in found_producers(x):
                producer.set_role("hidden")

    def _mark(self, out: Tensor) -> Tensor:
        """Let layers behind this one find it."""
        if self._forms is not None and self.role is None and not torch.compiler.is_compiling():
            leave_mark(self, out)
        return out

    def _integers(self, x: Tensor, linear: Any) -> IntegerProduct | None:
        """The integers that a layer sums in evaluation; None where it sums floats or signs."""
        bits, letters = self.input_bits, self.letters
        if self.training or bits is None or not bits.is_settled or x.dim() != MATRIX:
            return None
        norm, is_normed = self._norm, letters.hidden_norm is not None
        if letters.bmm[2] == "B" or self.hidden_quantizer is not None:
            return None
        if self.node_dim not in (0, -MATRIX) or (norm is not None and norm.training):
            return None
        weight = self._ready(linear, x).detach().contiguous()
        words = self._see(x, bits, 0.0).words
        gain = None if is_normed else self.output_gain
        scale, shift = output_affine(weight, bits.unit, words.zero_one, words.offset, gain, norm)
        # Bits of -1/2 and +1/2 cancel out.
        has_shift = is_normed or bits.kind != "activation"
        if has_shift and words.size > MAX_NARROW_SIZE:
            return None
        packed = torch.ops.bitgnn.pack(weight)
        assert words.total is not None
        return IntegerProduct(
            words.words, packed, words.size, scale, shift if has_shift else None, words.total
        )

    def _sums_alone(self, integers: IntegerProduct | None) -> bool:
        """Whether the sums of integers are all there is: no gradient, and no NaN to pass on."""
        if integers is None or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return False
        # The host waits for the answer, which no graph can, and nobody wants who looks for waits.
        if integers.total.is_cuda and (
            torch.cuda.is_current_stream_capturing() or torch.cuda.get_sync_debug_mode()
        ):
            return False
        return bool(torch.isfinite(integers.total.sum()))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """Weights as wide as the loaded thermometers; what PyG's checkpoints lack stays."""
        module: Any = self
        starts = tuple(f"{prefix}{name}" for name in OWN)
        if self._forms is not None and not any(key.startswith(starts) for key in state_dict):
            own = module.state_dict(prefix=prefix)
            state_dict.update({k: v for k, v in own.items() if k.startswith(starts)})
        widths = {
            state_dict[key].numel()
            for key in (f"{prefix}input_bits.columns", f"{prefix}root_bits.columns")
            if key in state_dict and self.letters.looks_up
        }
        products = {id(linear) for linear in self._products()}
        for name, linear in module.named_children():
            loaded = state_dict.get(f"{prefix}{name}.weight")
            if id(linear) not in products or loaded is None or is_uninitialized_parameter(loaded):
                continue
            if loaded.dim() != MATRIX:
                continue
            held: Any = linear.weight
            # Without thermometers a product has its features' width.
            fits = {*widths, *((linear.in_channels,) if 0 in widths else ())}
            if loaded.size(1) in fits and not is_uninitialized_parameter(held):
                held.data = held.data.new_empty(loaded.shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)  # type: ignore[misc]
        self.forget_constant_bits()
        if self._forms is not None:
            code = int(self.role_code)
            self._has_looked = False
            self.role = None if code == 0 else ROLES[code - 1]
            # Modules inside are loaded behind their owner.
            loaded = state_dict.get(f"{prefix}input_bits.code")
            # One of another shape is the error of the module inside.
            kind = int(loaded) if isinstance(loaded, Tensor) and loaded.numel() == 1 else 0
            self._settle_letters(KINDS[kind - 1] if 0 < kind <= len(KINDS) else None)
