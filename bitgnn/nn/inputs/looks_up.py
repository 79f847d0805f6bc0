"""Products of layers on their input's own form: first batches, gradients, sums of integers."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from bitgnn.nn.aggregation import IntegerProduct
from bitgnn.nn.inputs.input_bits import InputBits
from bitgnn.nn.inputs.looked_up_products import MATRIX
from bitgnn.nn.map_linear import is_watched, remake_weight
from bitgnn.nn.repeats import is_in_backward, is_recorded, is_reentrant
from bitgnn.nn.roles.has_role import ROLES, STEPS, HasRole
from bitgnn.nn.roles.settling import current_flow, tells_apart
from bitgnn.nn.roles.tape import found_producers, joins_features, kept_share, leave_mark
from bitgnn.nn.roles.waiting import watch
from bitgnn.nn.spread import spread_graph
from bitgnn.ops.reference.pairs import MAX_NARROW_SIZE
from bitgnn.quantize.looked_up_linear import InputWords, output_affine

GAINS = ("gain_level", "root_gain_level")
"""Parameters of gains."""
NORMS = ("hidden_norm", "root_norm", "output_norm")
OWN = ("input_bits", "root_bits", *NORMS, *GAINS, "feeds", "steps")
"""Names that a layer of named precision adds to PyG's; a checkpoint of PyG lacks them."""


class _WithParameters(torch.autograd.Function):
    """Passes a tensor on, and gives parameters gradients of 0."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, *parameters: Tensor) -> Tensor:
        ctx.parameters = [(p.shape, p.numel(), p.dtype, p.device) for p in parameters]
        return out.detach()  # no view, so that an activation behind it may write in place

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        shapes, sizes, dtypes, devices = zip(*ctx.parameters, strict=True)
        # One tensor of zeros for all, most often of one dtype on one device.
        parts = grad.new_zeros(sum(sizes), dtype=dtypes[0], device=devices[0]).split(sizes)
        places = zip(parts, shapes, dtypes, devices, ctx.needs_input_grad[1:], strict=True)
        return grad, *[
            part.view(shape).to(device, dtype) if needed else None
            for part, shape, dtype, device, needed in places
        ]


class LooksUp(HasRole):
    """Mixin of layers whose product takes 8-bit rows or bits, by the input's statistics."""

    def _ready(self, linear: Any, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _meet_model(self) -> None:
        """At the start of a forward: read the letters.

        Where a compiler traces it, a first pass finds the roles before.
        """
        # A compiler traces the hooks, too, from where it has given a frame up.
        if (self.training and self.waits_for_model and self._forms is not None) and (
            torch.compiler.is_compiling() or "torch._dynamo" in sys.modules
        ):
            from bitgnn.nn.roles import _outside_graphs

            _outside_graphs.meet_model(self)
        self.letters  # noqa: B018

    def _look(self, x: Tensor, bits: InputBits | None, *linears: Any) -> None:
        """Before the product: check the width, and in training ask where the input comes from."""
        for linear in linears:
            # An input of another width is refused before it tells anything.
            self._ready(linear, x)
        if bits is None:
            return
        if bits.is_lazy:
            bits.materialize(x.size(-1))
        if not self.training:
            return
        flow, may_settle = current_flow(), self._may_settle
        if flow is None and may_settle:
            self._check_repeat()
            self._ask_autograd(x, bits)
        is_chosen = bits.choose(x.reshape(-1, x.size(-1)))
        if flow is not None:
            flow.read(self, bits, x)
        if may_settle or is_chosen:
            self.letters  # noqa: B018

    def _check_repeat(self) -> None:
        """Refuse checkpointing where the two runs of a forward would differ by their roles."""
        if self._forms is None or torch.compiler.is_compiling() or self.is_trained:
            return
        again = is_in_backward()
        if not again and not is_reentrant():
            return
        # A forward of somebody else's that runs again has the role of its first run, known or not.
        differs = self._feeds_bits != self._fed if again else self.role is None
        if differs:
            raise RuntimeError(
                f"{type(self).__name__}: role must be known before the layer runs in a checkpoint, "
                f"which runs it twice; pass role= (one of {tuple(ROLES)}), call the layers inside "
                "of one nn.Module, or run the first batch without checkpointing"
            )

    def _ask_autograd(self, x: Tensor, bits: InputBits) -> None:
        """Count the first steps of training, and read the data flow from their graphs."""
        is_compiled = torch.compiler.is_compiling()
        if is_in_backward():
            return
        if self._forms is None:
            if self.waits_for_model and is_recorded() and not is_compiled and bits.host_count == 0:
                bits.set_kept(kept_share(x))
            return
        self._fed = self._feeds_bits
        if not is_recorded():
            return
        if not is_compiled and self.is_trained:
            return
        if bits is self.input_bits:
            with torch.no_grad():
                self.steps.add_(1.0)
        if is_compiled or self._asked_role is not None:
            return
        producers = found_producers(x) if x.requires_grad else []
        if self in producers and bits.reads_known < 0.0:
            producers = []  # applied to features before: its own results are rows like those
        elif producers and not joins_features(x) and self._tells_apart(x, share := kept_share(x)):
            bits.set_reads(True)
            bits.set_kept(share)
        elif bits.reads_known == 0.0:
            bits.set_reads(False)
        if self._numbers()[0] == 0.0:
            with torch.no_grad():
                self.feeds.fill_(-1.0)
        for producer in producers:
            if producer.ends_in_floats or not self._letters.is_float:
                producer.tell_read_by_binary()

    def _tells_apart(self, x: Tensor, kept: float) -> bool:
        return tells_apart(x, kept, self.least_below)

    def _with_all_parameters(self, out: Tensor) -> Tensor:
        """``out``, from which each of the layer's own parameters gets a gradient, if one of 0.

        The role decides whether norms or gains act; DDP waits for the gradients of all of them.
        """
        if self._forms is None or not (self.training and torch.is_grad_enabled()):
            return out
        module: Any = self
        parts, held = module._modules, []
        for name in NORMS:
            part = parts.get(name)
            if part is not None:
                # What pruning and parametrisations put in place of a parameter counts, too.
                own = part.parameters() if part._modules else part._parameters.values()
                held.extend(own)
        held.extend((self.gain_level, self.root_gain_level))
        held = [each for each in held if each is not None]
        found: Tensor = _WithParameters.apply(out, *held)
        return found

    def _mark(self, out: Tensor) -> Tensor:
        """Mark the result so that later layers find this one."""
        has_name = self._forms is not None
        if torch.compiler.is_compiling() or (self._letters.is_float and not has_name):
            return out
        held = self._state.values if has_name else None
        if held is not None and held[1] >= STEPS and held[0] <= 0.0:
            return out  # floats, which it was trained to give, are features of who reads them
        flow = current_flow()
        if flow is not None:
            flow.made(self, out)
        elif has_name:
            leave_mark(self, out)
        return out

    def _integers(self, x: Tensor, linear: Any) -> IntegerProduct | None:
        """The integers that a layer sums in evaluation; None where it sums floats or signs."""
        bits, letters = self.input_bits, self._letters
        if self.training or bits is None or not bits.is_settled or x.dim() != MATRIX:
            return None
        norm, is_normed = self._norm, letters.hidden_norm is not None
        if letters.bmm[2] == "B" or self.hidden_quantizer is not None or bits.kind == "rows":
            return None
        if self.node_dim not in (0, -MATRIX) or (norm is not None and norm.training):
            return None
        if is_watched(linear):
            return None
        remake_weight(linear)
        weight = self._ready(linear, x).detach().contiguous()
        words = self._see(x, bits, 0.0).operand
        assert isinstance(words, InputWords)
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
        """True where the sums of integers are all there is: no gradient, no NaN to pass on."""
        if integers is None or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return False
        # The host waits for the answer, which no graph can, and nobody wants who looks for waits.
        if integers.total.is_cuda and (
            torch.cuda.is_current_stream_capturing() or torch.cuda.get_sync_debug_mode()
        ):
            return False
        spread, total = spread_graph(), integers.total.sum()
        return bool(torch.isfinite(total if spread is None else spread.total(total)))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """Take what PyG's checkpoints hold; what they lack stays."""
        module: Any = self
        starts = tuple(f"{prefix}{name}" for name in OWN)
        is_own = any(key.startswith(starts) for key in state_dict)
        if self._forms is not None and not is_own:
            own = module.state_dict(prefix=prefix)
            state_dict.update({k: v for k, v in own.items() if k.startswith(starts)})
        super()._load_from_state_dict(state_dict, prefix, *rest)  # type: ignore[misc]
        self.forget_constant_bits()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy waits for its model like the layer itself."""
        super().__setstate__(state)  # type: ignore[misc]
        if self.waits_for_model:
            watch.add(self)
