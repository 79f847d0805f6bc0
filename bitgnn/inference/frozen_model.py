"""FrozenModel: the inference form of a trained binary model, the one that freeze() returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor, nn

from bitgnn._memory import tells_of_memory
from bitgnn.bits import BitImages, BitTensor, Int8Tensor, set_bits
from bitgnn.inference.bound_program import FeatureForm, Features, Packed
from bitgnn.inference.bwta.architecture import frozen_layers
from bitgnn.inference.called_program import CalledProgram, Kind
from bitgnn.inference.checks import SIDE
from bitgnn.inference.executable import run_code
from bitgnn.inference.frozen import FreezeReport, Frozen, float_bytes_of
from bitgnn.inference.graph import Graph, GraphSpec
from bitgnn.inference.image_calls import OF_IMAGES, Takes, check_to_pack, run_images
from bitgnn.inference.own_call import PLAIN_CALL, OwnCall, hand_out
from bitgnn.inference.own_code.calls import FloatCall
from bitgnn.inference.program import Program
from bitgnn.inference.sparse_features import is_sparse

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Features", "FrozenModel", "Graph", "Kind"]


class FrozenModel(CalledProgram):
    """Inference form of a binary model: packed weights, thresholds instead of norm and sign.

    It is a program, or, where no trace follows the forward (:meth:`of_code`), the user's own code
    with packed layers in it.

    Args:
        program: the calls.
        tensors: what they read, by name.
        graphs: what becomes of the graph, one entry for each adjacency in use; empty for a
            network without a graph.
        report: what freezing did.
        calls: modules and functions that no operator stands for.
        features: ``"packed"`` for a model that refuses floats.
        own_call: how the trained model is called.
        takes: ``"nodes"``; or of a network of images, whose height and width may be any that the
            trained model takes, ``"images"``, ``"rows"`` or ``"flattened"``.

    Attributes:
        kind: ``"program"`` of nodes or other rows; ``"images"``; or the user's own forward:
            ``"layers"`` with binary layers, ``"bwta"`` with BWTA layers, which may be moved to
            another type of floats. The name in checkpoints.
        model: the user's own model, of those two kinds alone; its methods and attributes are those
            of the frozen one as well, the methods without gradients.

    Raises:
        ValueError: the program cannot run; the message names the call. Or packed features cannot
            do, since floats are needed behind the packing.
    """

    takes: Takes

    def __init__(
        self,
        program: Program,
        tensors: Mapping[str, Tensor],
        graphs: Sequence[GraphSpec],
        report: FreezeReport,
        calls: Sequence[FloatCall] = (),
        features: FeatureForm = "floats",
        own_call: OwnCall = PLAIN_CALL,
        takes: Takes = "nodes",
    ) -> None:
        if takes not in get_args(Takes):
            raise ValueError(
                f"FrozenModel: takes must be one of {list(get_args(Takes))}, got {takes!r}"
            )
        # Before there is a module: the checks of the base ask for them.
        self.__dict__.update(takes=takes, kind="program" if takes == "nodes" else "images")
        super().__init__(program, tensors, graphs, calls, features, own_call)
        self.report = report

    @classmethod
    def of_code(cls, kind: Kind, model: nn.Module, report: FreezeReport) -> Self:
        """The frozen form of a model that runs its own forward, with packed layers in it."""
        made = cls.__new__(cls)
        nn.Module.__init__(made)
        made.kind, made.model, made.report = kind, model, report
        return made.requires_grad_(False).eval()

    @property
    def layers(self) -> dict[str, Any]:
        """The packed layers by name, of a model of kind ``"layers"``."""
        if self.kind != "layers":
            raise AttributeError(f"a frozen model of kind {self.kind!r} has no layers of its own")
        found = self.model.named_modules()
        return {n: m for n, m in found if isinstance(getattr(m, "frozen", None), FrozenModel)}

    @property
    def packed_nbytes(self) -> int:
        """Bytes of the packed layers."""
        if self.kind != "bwta":
            return self.nbytes - sum(self.float_bytes().values())
        layers = frozen_layers(self.model).values()
        return sum(t.nbytes for layer in layers for t in layer.state_dict().values())

    def float_bytes(self) -> dict[str, int]:
        """Bytes of what is not packed, by layer or module; nothing is told of BWTA models."""
        if self.is_program:
            return super().float_bytes()
        found = {} if self.kind == "bwta" else float_bytes_of(self.model)
        return {name or type(self.model).__name__: size for name, size in found.items()}

    def forward(self, *args: Any, out: Tensor | None = None, **kwargs: Any) -> Any:
        """Compute the trained model's result, without gradients.

        A call with features and a prepared graph runs at once. Any other call is the trained
        model's own, with the arguments of its forward in their order or by name, or with a
        ``Data`` object, which then holds them.

        Args:
            *args: features, graph and further arguments of the trained forward. Features are
                ``[N, in_channels]`` floats as the trained model takes them, or the result of
                :meth:`pack_features`; only the latter for a model frozen with
                ``features="packed"``. Integers, bools and numpy arrays become floats
                first, sparse tensors dense ones, unless their bits are all that is read: those are
                packed from the entries. ``[*, N, in_channels]`` runs matrix by matrix. Models that
                look nodes up in an embedding take what it takes. Images are ``[N, C, H, W]`` (or
                ``[N, K]``) float32, float16, bfloat16 or uint8 in any memory format, contiguous
                and channels_last ones being read in place.
                The graph comes from :meth:`prepare_graph`; an edge index or sparse tensor is
                converted, which is remembered for as long as a dense tensor is the same one and
                not written to. None for a network without a graph.
            out: the scores are written there, range by range where the graph is large; its shape
                and dtype must be theirs, its device theirs or the CPU, such as memory of a mapped
                file, ``torch.from_numpy(numpy.memmap(...))``. The argument of that name of the
                trained forward, where there is one.
            **kwargs: arguments of the trained forward by name.

        Returns:
            ``[N, out_channels]`` scores of the type of a tensor of features of float16, bfloat16 or
            float64, else (and of images) of float32, in which they are computed; int64 ``[N]`` for
            a model that hands out classes, or the structure of tensors that the forward returns.

        Raises:
            torch.OutOfMemoryError: the bytes that are lacking, and a way out; the model is usable.
            TypeError: an argument is missing, unknown or of no use as such.
            ValueError: the number of features or of nodes does not fit, devices differ, packed
                features lack the row scale this model needs, or are needed in place of floats; an
                image is smaller than the kernel of a layer (the message names it); or ``out`` does
                not fit.
        """
        if self.kind == "program":
            return self._run_nodes(*args, out=out, **kwargs)
        if self.kind == "images":
            return self._run_images(*args, out=out, **kwargs)
        if out is not None:
            kwargs["out"] = out
        if torch.compiler.is_compiling():
            return self.model(*args, **kwargs)
        with torch.no_grad():
            return self.model(*args, **kwargs)

    def _run_images(self, x: Any, adjacency: Any = None, *, out: Tensor | None = None) -> Tensor:
        if adjacency is not None:
            raise ValueError("FrozenModel: adjacency must be None, this model has no graph layers")

        def run(*given: Any) -> Any:
            return run_images(self, *given)

        result: Tensor = self._run_recorded(x, None, run)
        return result if out is None else hand_out("FrozenModel", result, out)

    @tells_of_memory("FrozenModel.pack_features", "pack parts of x and join the results")
    @torch.inference_mode()
    def pack_features(self, x: Any, check_finite: bool = False, layout: str = "auto") -> Any:
        """Pack raw features once for many calls, as bits or as 8-bit rows.

        Args:
            x: ``[N, in_channels]`` floats, dense or in a sparse tensor, whose entries alone are
                read where the model reads nothing but bits of ``x >= threshold``; or images or
                rows as :meth:`forward` takes them.
            check_finite: raise where ``x`` holds NaN or infinity.
            layout: ``"dense"`` for packed words; ``"sparse"`` for the pattern of set bits, which
                only models whose first product returns bits can use; ``"auto"`` for the smaller
                of those the model can use, which is also the faster, and for words on a GPU where
                the first product has thresholds.

        Returns:
            The bits, with the row scale if the model uses one, or their pattern; an ``Int8Tensor``
            where the features enter the model as 8-bit rows; ``BitImages`` of images.

        Raises:
            TypeError: ``x`` is packed already, or images have another dtype.
            ValueError: the number of features does not fit, ``x`` is not finite, the layout is
                unknown or of no use to this model, or the model needs floats throughout.
        """
        name = "FrozenModel.pack_features"
        if self.kind == "images":
            check_to_pack(name, self, x, layout)
            words, *_ = self._packed(name, x, check_finite)
            if self._entry_call.kind in OF_IMAGES:
                return BitImages(words, self._packed_size)
            return BitTensor._trusted(words, self._packed_size)
        if isinstance(x, Packed):
            raise TypeError(f"{name}: x must be floats, got packed features")
        if x.dim() != 2 or x.size(1) != self.in_channels:
            raise ValueError(f"{name}: x must be [N, {self.in_channels}], got {list(x.shape)}")
        layouts = ("auto", "dense", "sparse") if self._takes_pattern else ("auto", "dense")
        packed, *scale = self._packed(name, x, check_finite)
        if layout not in layouts:
            raise ValueError(
                f"{name}: layout must be one of {layouts} for this model, got {layout!r}"
            )
        if self._own_rows is not None:
            _, *scales = self._own_rows._state()
            return Int8Tensor._made(packed, *scales)
        bits = BitTensor(packed, self._packed_size, scale[0] if scale else None)
        if layout == "dense" or "sparse" not in layouts:
            return bits
        if layout == "auto" and bits.is_cuda and self._compares_sums:
            return bits
        pattern = set_bits(bits)
        return pattern if layout == "sparse" or pattern.nbytes < bits.nbytes else bits

    def _packed(self, name: str, x: Tensor, check_finite: bool) -> list[Any]:
        """Outputs of the packing call for ``x``."""
        if self.program.entry is None:
            raise ValueError(f"{name}: this model takes floats, {self._why_floats()}")
        entries = x.to_sparse_coo().coalesce().values() if is_sparse(x) else x
        if check_finite and x.is_floating_point() and not bool(torch.isfinite(entries).all()):
            raise ValueError(f"{name}: x must be finite, got NaN or infinity")
        if is_sparse(x):
            bits = self._bits_of_entries(name, x)
            if isinstance(bits, BitTensor):
                return [bits.words]
            x = x.to_dense()
        calls = self.program.calls[: self.program.entry]
        packing = self._compiled(calls, [0], calls[-1].outputs[0], fuses=False).made[0]
        values = packing.values([x])
        run_code(packing.code, values, (), frees=False)
        kept = [n for n in calls[-1].outputs if self.registers[n].form != "unused"]
        return [values[register] for register in kept]

    def _example_shape(self) -> Callable[[int], tuple[int, ...]]:
        side = (SIDE, SIDE) if self.takes == "images" else ()
        return lambda rows: (rows, self.program.in_channels, *side)

    def _why_floats(self) -> str:
        if self.kind == "images":
            return "since a layer of this model reads more of its images than one bit of each value"
        return super()._why_floats()

    def _bind(self) -> None:
        if self.is_program:
            super()._bind()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        if not self.is_program:
            return Frozen._apply(self, fn, recurse)
        super()._apply(fn, recurse)
        for own in self._own:
            own._apply(fn, recurse)
        return self

    def __getattr__(self, name: str) -> Any:
        """Methods of the trained model, on its packed layers, without gradients."""
        own = self.__dict__
        if name in own.get("_own_methods", ()):
            return getattr(self._own[0], name)
        try:
            return super().__getattr__(name)
        except AttributeError:
            is_code = own.get("kind") in ("layers", "bwta")
            if not is_code or name.startswith("__") or name == "model":
                raise
        found = getattr(self.model, name)
        if not callable(found) or isinstance(found, nn.Module | type):
            return found
        return torch.no_grad()(found)

    def extra_repr(self) -> str:
        """Packed layers and bytes; of a program its widths and the calls, too."""
        head = super().extra_repr()
        if not self.is_program:
            return head
        return f"{self.in_channels}, {self.out_channels}, {head}\n{self.program}"
