"""Running statistics of a layer's input columns, kept as a batch norm keeps its own."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, is_lazy

TINY = torch.finfo(torch.float32).tiny
"""Smallest value that counts as above 0: no device disagrees about normal numbers."""
LOOKED_AT = 4096
"""Rows of a batch that statistics are made of at most."""
MEMORY = 100.0
"""Batches that the running statistics stand for at most: the least momentum is 1 / 100."""
OFTEN, SELDOM = 64, 16
"""Number of first batches that all count, and the period of those that count later."""
MOST = 1e19
"""Values whose squares float32 can hold."""
MANY = 5
"""Columns that a message names at most."""
COLUMNS = ("mean", "variance", "present")
SCALARS = ("negative", "rows", "batches")


class Moments(NamedTuple):
    """Statistics of columns ``[K]`` and of all entries, float32."""

    mean: Tensor
    """Mean of each column."""
    variance: Tensor
    """Mean squared deviation of each column."""
    present: Tensor
    """Share of each column's entries that are above 0."""
    negative: Tensor
    """Share of all entries that are below 0."""
    rows: Tensor
    """Number of rows that the statistics stand for."""
    batches: Tensor
    """Number of batches that came."""


class LazyColumns(UninitializedBuffer):
    """A buffer sized by the first input's columns; unlike torch's it can be copied."""

    def __deepcopy__(self, memo: Any) -> LazyColumns:
        return lazy_columns(self.device)


def lazy_columns(device: torch.device | None = None) -> LazyColumns:
    """A float32 buffer of unknown size."""
    kind: Any = LazyColumns
    made: LazyColumns = kind(device=device, dtype=torch.float32)
    return made


class ColumnStatistics(nn.Module):
    r"""Mean, variance and share of positive entries of each input column.

    A batch of :math:`n` rows is merged into statistics of :math:`r` rows with the weight
    :math:`n / (n + r)`. Few rows weigh little against many, whichever came first. :math:`r` grows
    to 99 n at most, so that late batches go on counting; where it is more, a batch takes a
    hundredth of it, so that a small last batch of an epoch leaves what large ones have told. The
    first 64 batches all count, after them every 16th.

    Buffers have their shapes from construction, or are torch's lazy ones for ``size`` -1; all are
    float32, so that averages of models, DDP and state dicts handle them.

    Args:
        owner: name of the layer's class, for messages.
        size: number of columns, -1 to take it from the first input.
    """

    mean: Tensor
    variance: Tensor
    present: Tensor
    negative: Tensor
    rows: Tensor
    batches: Tensor

    def __init__(self, owner: str, size: int) -> None:
        super().__init__()
        self.owner = owner
        self.host_count = 0
        for name in COLUMNS:
            lazy = size < 0
            made = lazy_columns() if lazy else torch.zeros(size, dtype=torch.float32)
            self.register_buffer(name, made)
        for name in SCALARS:
            self.register_buffer(name, torch.zeros((), dtype=torch.float32))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Forget everything that was seen."""
        self.host_count = 0
        for name in (*COLUMNS, *SCALARS):
            buffer = getattr(self, name)
            if not is_lazy(buffer):
                with torch.no_grad():
                    buffer.fill_(1.0 if name == "variance" else 0.0)

    @property
    def is_lazy(self) -> bool:
        """True while the number of columns is not known."""
        return type(self._buffers["mean"]) is LazyColumns

    def materialize(self, size: int) -> None:
        """Give lazy buffers their number of columns."""
        if self.is_lazy:
            for name in COLUMNS:
                self._materialize(name, size)
            self.reset_parameters()

    def _materialize(self, name: str, size: int) -> None:
        lazy: Any = getattr(self, name)
        self._buffers[name] = torch.zeros(size, dtype=torch.float32, device=lazy.device)

    def _apply(self, fn: Any, recurse: bool = True) -> ColumnStatistics:
        """Keep float32 where a model is cast: float32 values are compared with them."""
        held = {name: getattr(self, name) for name in (*COLUMNS, *SCALARS)}
        super()._apply(fn, recurse)
        for name, before in held.items():
            after = getattr(self, name)
            if after.dtype != torch.float32:
                self._buffers[name] = before.to(after.device)
        return self

    @property
    def moments(self) -> Moments:
        """The running statistics as they are."""
        held: Any = self._buffers
        columns = held["mean"], held["variance"], held["present"]
        return Moments(*columns, held["negative"], held["rows"], held["batches"])

    @property
    def is_young(self) -> bool:
        """True while every batch counts and forms may still change, as the host counts batches."""
        return self.host_count <= OFTEN

    @property
    def is_due(self) -> bool:
        """True if the next batch counts, as the host counts batches."""
        return self.host_count < OFTEN or self.host_count % SELDOM == 0

    def counted(self, x: Tensor) -> Moments | None:
        """The running statistics with ``x`` merged in where its batch counts, None where not.

        A compiled model and a CUDA graph decide by the buffer, at every batch anew, as the host
        does by its own count.
        """
        if not decides_on_device(x):
            return self.merged(x) if self.is_due else None
        batches = self.moments.batches
        is_due = (batches < OFTEN) | (batches % SELDOM == 0)
        return self.merged(x, is_due.float())

    def merged(self, x: Tensor, due: Tensor | None = None) -> Moments:
        """The running statistics with those of ``x`` ``[N, K]`` merged in; nothing is kept.

        They stay where the number ``due`` is 0, and in batches of GPUs with NaN.

        Raises:
            ValueError: a value is NaN, infinite, or too large for its square to be a float32; on a
                GPU, which the check waits for, only in first batches.
        """
        held, found, every = self.moments, x.detach(), 1
        if found.numel() == 0:
            return held
        if found.size(0) > LOOKED_AT:
            # Rows at equal distances: an order by class or by time leaves no class and no time out.
            every = -(-found.size(0) // LOOKED_AT)
        columns = held.mean, held.variance, held.present
        mean, variance, present, negative, rows, is_finite = torch.ops.bitgnn.merge_columns(
            found.float(), every, MEMORY, *columns, held.negative, held.rows, due
        )
        is_checked = self.is_young or not found.is_cuda
        if is_checked and not decides_on_device(found) and not bool(is_finite):
            squares = found[::every].float().square()
            wrong = (~squares.isfinite()).any(0).nonzero().view(-1).tolist()
            named = ", ".join(map(str, wrong[:MANY])) + (", ..." if len(wrong) > MANY else "")
            raise ValueError(
                f"{self.owner}: x must be finite and below {MOST:g} in training, got NaN, infinity "
                f"or more in columns {named}"
            )
        return Moments(mean, variance, present, negative, rows, held.batches + 1.0)

    def commit(self, moments: Moments | None) -> None:
        """Make merged statistics the running ones; None counts a batch that is not due."""
        is_compiled = torch.compiler.is_compiling()
        if not is_compiled:
            self.host_count += 1
        # Compilers cannot ask a tensor for its mode.
        with torch.inference_mode(not is_compiled and self.rows.is_inference()):
            if moments is None:
                self.batches.add_(1.0)  # so that a training that resumes knows which batch is due
            elif moments.batches is not self.moments.batches:  # else nothing was merged
                torch._foreach_copy_(list(self.moments), list(moments))

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars=True)
        for name in (*COLUMNS, *SCALARS):
            held = destination[prefix + name]
            if not is_lazy(held):
                destination[prefix + name] = held if keep_vars else held.detach()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """Lazy buffers take the shape of the loaded ones, or stay lazy where those are."""
        for name in COLUMNS:
            loaded = state_dict.get(prefix + name)
            if loaded is None:
                continue
            if is_lazy(loaded):
                self._buffers[name] = lazy_columns()
            elif is_lazy(getattr(self, name)) and loaded.dim() == 1:
                self._materialize(name, loaded.numel())
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self.host_count = 0 if self.batches.is_meta else int(self.batches)


def decides_on_device(x: Tensor) -> bool:
    """True where one recording of a forward serves many: the host cannot decide for each batch."""
    if torch.compiler.is_compiling():
        return True
    return x.is_cuda and torch.cuda.is_current_stream_capturing()
