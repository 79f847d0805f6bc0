"""Layers whose precision has a name: they look up their input's bits and find their role."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from bitgnn.nn.input_bits import InputBits
from bitgnn.nn.integer_sums import IntegerProduct
from bitgnn.nn.precision import LayerPrecision
from bitgnn.nn.roles import (
    KeptEntries,
    Role,
    chosen_precision,
    found_producers,
    kept_entries,
    leave_mark,
    named_forms,
)
from bitgnn.nn.seen_bits import NotesBits
from bitgnn.nn.weight_decay import spare_from_decay
from bitgnn.ops.reference.narrow import MAX_NARROW_SIZE
from bitgnn.quantize import binary_sign
from bitgnn.quantize.constants import made_once
from bitgnn.quantize.looked_up_linear import (
    GAIN_SPEED,
    InputWords,
    looked_up_linear,
    output_affine,
)

__all__ = ["GAINS", "LooksUp", "Part"]

WINDOW = 4.0
"""Half-width of a pattern's straight-through window, in root mean squares of the input."""
GAIN_START = -2.0
"""Logarithm of a last layer's gain at first. Starting at 0 loses 4 points on few labels."""
MATRIX = 2
ROLES: tuple[Role, ...] = ("hidden", "last")
GAINS = ("gain_level", "root_gain_level")
"""Parameters of gains."""
OWN = ("input_bits", "root_bits", "hidden_norm", "root_norm", *GAINS, "role_code")
"""Names of what a layer of named precision has beside PyG's; a checkpoint of PyG lacks them."""


class SeenInput(NamedTuple):
    """What products with looked-up bits take of an input ``[*, K]``.

    Attributes:
        x: the input.
        words: its bits, as rows.
        window: how far from 0 its gradient reaches; None: everywhere, or it has none.
        total: ``[N, 1]`` sums of rows, which are finite where all of a row is.
    """

    x: Tensor
    words: InputWords
    window: Tensor | None
    total: Tensor


class Part(NamedTuple):
    """One of the products with an input's bits.

    Attributes:
        weight: ``[M, B]`` latent weights.
        norm: behind the product, or None: a gain is there instead.
        to_signs: whether the sign of the result is wanted.
        is_root: whether it is the nodes' own product.
    """

    weight: Tensor
    norm: Any
    to_signs: bool = False
    is_root: bool = False


class LooksUp(NotesBits):
    """Mixin of layers whose product takes bits looked up from the data.

    Attributes:
        letters: the precision in use, which follows the role where it was given by name.
        role: ``"hidden"`` or ``"last"``; None as long as no binary layer is known to take the
            result, which then has the last one's form.
        input_bits: what the product sees of the input, or None.
        gain_level: ``[1]`` parameter behind the gain of a last layer's product, or None.
        root_gain_level: the same of the nodes' own product, where there is one beside the other.
        root_bits: the same of the destinations of a bipartite graph, where they are other features.
    """

    letters: LayerPrecision
    role: Role | None
    training: bool
    role_code: Tensor
    input_bits: InputBits | None
    root_bits: InputBits | None
    gain_level: nn.Parameter | None
    root_gain_level: nn.Parameter | None
    root_start: float
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
        self._start_notes()
        if self._forms is None:
            self.letters = LayerPrecision.parse(precision)
        else:
            self.letters = self._forms["last"]

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
            self.letters = self._forms[role]
            self.role_code.fill_(1 + ROLES.index(role))

    @property
    def output_gain(self) -> Tensor | None:
        r"""What multiplies a last layer's product: ``[1]``, :math:`e^{10 l - 2}`, or None.

        Scores start small, so that a few labelled nodes do not settle all of the signs before the
        loss has said much; Adam, whose steps know no scale, lets them grow in a few epochs where
        many nodes or classes ask for it. The gradient that reaches the level :math:`l` is a tenth
        of the logarithm's, so that a step of plain gradient descent is one of the logarithm.
        """
        return None if self.gain_level is None else _gain(self.gain_level.detach())

    @property
    def root_gain(self) -> Tensor | None:
        """The same for the nodes' own product, which starts at a share of the neighbours'."""
        level = self.root_gain_level
        return None if level is None else self.root_start * _gain(level.detach())

    def _ready(self, linear: Any, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _products(self) -> Iterable[nn.Module]:
        raise NotImplementedError

    def _look(self, x: Tensor, bits: InputBits | None, *linears: Any) -> None:
        """Before the product: find the layers in front, and what the input is made of."""
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return
        if self._has_looked and (bits is None or bits.is_settled):
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
                    self._widen(linear, x, bits)

    def _tell_producers(self, x: Tensor) -> None:
        """Let the layers that made ``x`` know, once, that a binary one takes it."""
        if not self._has_looked and x.requires_grad and not torch.compiler.is_compiling():
            for producer in found_producers(x):
                producer.set_role("hidden")

    def _widen(self, linear: Any, x: Tensor, bits: InputBits) -> None:
        """One weight for each bit, drawn anew: bits of one feature that begin alike learn less."""
        weight = self._ready(linear, x)
        size = bits.columns.numel()
        weight.data = weight.data.new_empty(weight.size(0), size).normal_(std=1 / math.sqrt(size))

    def _mark(self, out: Tensor) -> Tensor:
        """Let layers behind this one find it."""
        if self._forms is not None and self.role is None and not torch.compiler.is_compiling():
            leave_mark(self, out)
        return out

    def _kept(self, x: Tensor, bits: InputBits) -> KeptEntries | None:
        """What dropout has kept of an activation; None of features: not known."""
        if not (self.training and x.requires_grad):
            return None
        if torch.compiler.is_compiling():
            return KeptEntries(None, bits.kept_share)
        entries = kept_entries(x)
        bits.kept_share = entries.share
        return entries

    def _words(self, x: Tensor, bits: InputBits, dropout: float) -> InputWords:
        """Bits of ``[*, K]`` as rows; a pattern where nothing was looked up yet."""
        if not bits.is_settled and torch.is_grad_enabled():
            if x.requires_grad:
                bits.settle_activation(x)
            else:
                bits.settle("pattern")
        words: InputWords = bits(x.reshape(-1, x.size(-1)), dropout, self._kept(x, bits))
        self._note_words("root input" if bits is self.root_bits else "input", words, x)
        return words

    def _see(self, x: Tensor, bits: InputBits, dropout: float) -> SeenInput:
        """Bits of an input, and what else its products share."""
        words = self._words(x, bits, dropout)
        held, window = x.detach(), None
        if x.requires_grad and words.columns is None:
            norm = torch.linalg.vector_norm(held, dtype=torch.float32)
            window = norm * (WINDOW / math.sqrt(max(x.numel(), 1)))
        return SeenInput(x, words, window, _rows(held).sum(1, keepdim=True))

    def _bits_product(self, seen: SeenInput, bits: InputBits, part: Part) -> Tensor:
        """The product of looked-up bits behind its norm or gain; its sign where that is wanted.

        Rows with NaN or infinity give NaN, as they do in floats.
        """
        rows, norm = _rows(seen.x), part.norm
        learns = self._learns(norm, rows)
        gain = level = None
        if norm is None and self.training:
            level, gain = self._levels((part,))
        elif norm is None:
            gain = self.root_gain if part.is_root else self.output_gain
        if self.training:
            spare_from_decay(part.weight)
        out = looked_up_linear(
            rows, part.weight, seen.words, bits.unit, gain, None if learns else norm, seen.window,
            level,
        )  # fmt: skip
        return self._finished(out, seen, part, learns)

    def _bits_products(
        self, seen: SeenInput, bits: InputBits, *parts: Part
    ) -> tuple[Tensor | None, ...]:
        """Several products of equally many outputs, in training as one with all the weights."""
        rows = _rows(seen.x)
        learns = [self._learns(part.norm, rows) for part in parts]
        has_gains = all(part.norm is None for part in parts)
        if not (self.training and (has_gains or all(learns))):
            return tuple(self._bits_product(seen, bits, part) for part in parts)
        for part in parts:
            spare_from_decay(part.weight)
        level, gain = self._levels(parts) if has_gains else (None, None)
        weight = torch.cat([part.weight for part in parts])
        out = looked_up_linear(rows, weight, seen.words, bits.unit, gain, None, seen.window, level)
        each = out.split(parts[0].weight.size(0), 1)
        return tuple(
            self._finished(out, seen, part, not has_gains)
            for out, part in zip(each, parts, strict=True)
        )

    @staticmethod
    def _learns(norm: Any, rows: Tensor) -> bool:
        """Whether a norm takes the statistics of the batch, behind the product."""
        return norm is not None and norm.training and rows.size(0) > 1

    def _levels(self, parts: tuple[Part, ...]) -> tuple[Tensor, Tensor]:
        """In training: levels of the gains of products, and the gains."""
        levels = [self.root_gain_level if part.is_root else self.gain_level for part in parts]
        starts = tuple(
            GAIN_START + math.log(self.root_start if part.is_root else 1.0) for part in parts
        )
        held: list[Tensor] = [level for level in levels if level is not None]
        assert len(held) == len(parts)
        for each in held:
            spare_from_decay(each)
        level = held[0] if len(held) == 1 else torch.cat(held)
        return level, _training_gain(level.detach(), starts)

    def _finished(self, out: Tensor, seen: SeenInput, part: Part, learns: bool) -> Tensor:
        """A product behind its norm and sign."""
        if learns:
            out = part.norm(out)
        if part.to_signs:
            out = binary_sign(out, self.letters.surrogate)
        out = out.add(seen.total, alpha=0)
        return out if seen.x.dim() == MATRIX else out.view(*seen.x.shape[:-1], -1)

    def _integers(self, x: Tensor, linear: Any) -> IntegerProduct | None:
        """What a layer sums in evaluation; None where its sums are of floats or of signs."""
        bits, letters = self.input_bits, self.letters
        if self.training or bits is None or not bits.is_settled or x.dim() != MATRIX:
            return None
        is_normed = letters.hidden_norm is not None
        norm: Any = self.hidden_norm if is_normed else None
        if letters.bmm[2] == "B" or self.hidden_quantizer is not None:
            return None
        if self.node_dim not in (0, -MATRIX) or (norm is not None and norm.training):
            return None
        weight = self._ready(linear, x).detach().contiguous()
        words = self._words(x, bits, 0.0)
        gain = None if is_normed else self.output_gain
        scale, shift = output_affine(weight, bits.unit, words.zero_one, words.offset, gain, norm)
        # Bits of -1/2 and +1/2 cancel out.
        has_shift = is_normed or bits.kind != "activation"
        if has_shift and words.size > MAX_NARROW_SIZE:
            return None
        packed = torch.ops.bitgnn.pack(weight)
        return IntegerProduct(words.words, packed, words.size, scale, shift if has_shift else None)

    def _sums_alone(self, x: Tensor, integers: IntegerProduct | None) -> bool:
        """Whether the sums of integers are all there is: no gradient, and no NaN to pass on."""
        if integers is None or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return False
        if x.is_cuda and torch.cuda.is_current_stream_capturing():
            return False
        return bool(torch.isfinite(x.float().sum()))

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
            if id(linear) not in products or loaded is None or loaded.dim() != MATRIX:
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
            self.letters = self._forms[self.role or "last"]


def _rows(x: Tensor) -> Tensor:
    return x if x.dim() == MATRIX else x.reshape(-1, x.size(-1))


def _gain(level: Tensor) -> Tensor:
    """The gain of a level."""
    steps = level / GAIN_SPEED + level * (GAIN_SPEED - 1 / GAIN_SPEED)
    return (steps.float() + GAIN_START).exp()


def _training_gain(level: Tensor, starts: tuple[float, ...]) -> Tensor:
    """Gains of levels, whose logarithms have these starts, in two launches."""
    start = made_once(starts, level, lambda: torch.tensor(starts, device=level.device))
    return torch.add(start, level, alpha=GAIN_SPEED).exp()
