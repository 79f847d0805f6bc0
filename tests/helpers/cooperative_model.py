"""What a cooperative kernel computes, in plain torch, from the tables it is given."""

import torch

from bitgnn.bits import BitTensor
from bitgnn.inference.cooperative_stages import OUTPUTS, SOURCES
from bitgnn.ops.reference.narrow import canonical_sums
from bitgnn.ops.reference.pack import binarise, row_scale

NUMBERS = 15
COLUMNS = 16


class Tables:
    """Reads the image of constants back."""

    def __init__(self, tables, number):
        self.image = tables.image
        numbers = tables.numbers[number * NUMBERS : (number + 1) * NUMBERS]
        source, output, self.size, self.out, self.scaled, *offsets, self.wide = numbers
        self.source, self.output = SOURCES[source], OUTPUTS[output]
        names = ("weights", "terms", "inversions", "threshold", "gain", "scale", "bias")
        names += ("product_scale", "product_threshold")
        self.offsets = dict(zip(names, offsets, strict=True))

    def words(self, name, count):
        start = self.offsets[name]
        assert start >= 0
        assert start % 4 == 0
        assert start + count <= len(self.image)
        return self.image[start : start + count]

    def floats(self, name):
        if self.offsets[name] < 0:
            return None
        size = self.out if name.startswith("product") else self.size
        return self.words(name, size).view(torch.float32)

    def weights(self):
        """Weights as 0 and 1, and the row of valid bits behind them."""
        words = -(-self.size // 32)
        pitch = (-(-words // 8) * 2 | 1) * 4
        columns = -(-self.out // COLUMNS) * COLUMNS
        table = self.words("weights", (columns + 1) * pitch).view(columns + 1, pitch)
        assert not table[self.out : columns].any()
        assert not table[:, words:].any()
        bits = BitTensor(table[:, :words].contiguous(), words * 32).to_float() > 0
        assert bits[-1, : self.size].all()
        assert not bits[-1, self.size :].any()
        return bits[: self.out, : self.size].long()

    def inverted(self):
        words = self.words("inversions", -(-self.out // 32))
        return BitTensor(words.unsqueeze(0), 32 * len(words)).to_float()[0, : self.out] > 0


def read_shares(shares, rows):
    """Row pointer, indices and factors of the whole graph from the shares of its blocks."""
    slices, blocks = shares.slices, len(shares.slices)
    capacity = ((rows + blocks - 1) // blocks + 15) // 16 * 16
    pointers, indices, row, col = [0], [], [], []
    for block in range(blocks):
        own = slices[block]
        count = rows // blocks + (block < rows % blocks)
        rowptr = own[: count + 1]
        assert rowptr[0] == 0
        pointers += (rowptr[1:] + pointers[-1]).tolist()
        floats = own[capacity + 4 : 3 * capacity + 4].view(torch.float32)
        row.append(floats[:count])
        col.append(floats[capacity : capacity + count])
        indices.append(own[3 * capacity + 4 :][: int(rowptr[-1])])
    return torch.tensor(pointers), torch.cat(indices), torch.cat(row), torch.cat(col)


def run(tables, shares, x, scale=None):
    """Scores from features ``x``, floats or 0 and 1."""
    rows = len(x)
    rowptr, indices, row, col = read_shares(shares, rows)
    before = held = factor = None
    for number in range(len(tables.numbers) // NUMBERS):
        stage = Tables(tables, number)
        threshold, gain = stage.floats("threshold"), stage.floats("gain")
        if stage.source == "bits":
            dense = torch.zeros(rows, stage.size)
            edges = torch.repeat_interleave(torch.arange(rows), rowptr.diff())
            dense.index_add_(0, edges, (2 * held - 1).float()[indices])
            bits = row.unsqueeze(1) * dense >= (0 if threshold is None else threshold)
        else:
            if stage.source == "integers":
                x = sums(stage, before, rowptr, indices, row, held, factor)
                if stage.output == "result":
                    return x
            if stage.source == "words":
                bits = x
            else:
                bits = binarise(x, threshold)
                if stage.scaled:
                    scale = row_scale(x, threshold, gain)
        bits = bits.long()
        weights = stage.weights()
        both = bits @ weights.t()
        count = bits.sum(1, keepdim=True)
        terms = stage.words("terms", stage.out)
        product = terms - 2 * count + 4 * both
        if stage.output == "bits" and stage.scaled:
            value = (scale.unsqueeze(1) * stage.floats("product_scale")) * product
            held = ((value >= stage.floats("product_threshold")) ^ stage.inverted()).long()
        elif stage.output == "bits":
            held = ((2 * both - count >= terms) ^ stage.inverted()).long()
        else:
            held = product >> 1
            factor = scale * col if stage.scaled else col
        before = stage
    raise AssertionError("the stages give no result")


def sums(stage, before, rowptr, indices, row, halves, factor):
    """``(row * scale) * (2 * sum(f * half) [+ sum(f)]) + bias`` in the canonical order."""
    halves = halves.float()
    if before.size % 2:
        halves = torch.cat([halves, torch.ones(len(halves), 1)], dim=1)
    total = canonical_sums(
        rowptr,
        halves.size(1),
        lambda edges: factor[indices[edges].long()],
        lambda edges: halves[indices[edges].long()],
    )
    value = 2 * total
    if before.size % 2:
        value = value[:, :-1] + total[:, -1:]
    scale, bias = stage.floats("scale"), stage.floats("bias")
    factor = row.unsqueeze(1) if scale is None else row.unsqueeze(1) * scale
    value = factor * value
    return value if bias is None else value + bias
