"""Programs are cut so that packed words travel, and sums of wide scores become products of sums."""

import itertools

import pytest
import torch

from bitgnn import BitAdjacency, freeze
from bitgnn.distributed.stages import stages
from bitgnn.distributed.summed_products import SUMMED_PRODUCT, is_wide, summed_product
from bitgnn.models import GCN, GraphSAGE


def cut(model, without=(0,)):
    torch.manual_seed(0)
    x, edges = torch.randn(30, 40), torch.randint(0, 30, (2, 99))
    model.train()(x, edges)
    frozen = freeze(model.eval())
    program, tensors = frozen.program, frozen._tensors()
    wide = {n for n, tensor in tensors.items() if tensor.dim() == 2 and is_wide(tensor)}
    size = len(program.registers)
    return frozen, stages(program.calls, [0], program.output, size, without, wide)


@pytest.mark.parametrize(("out", "precision"), [(3, "bin"), (60, "bin"), (60, "full")])
def test_words_travel(out, precision):
    for kind in (GCN, GraphSAGE):
        frozen, found = cut(kind(40, 64, out, 3, precision=precision))
        assert len(found) == 4
        assert found[0].reads == [0]
        assert found[-1].keeps == [frozen.program.output]
        for before, behind in itertools.pairwise(found):
            assert set(behind.gathers) <= {*before.sends}
            forms = {frozen.registers[register].form for register in behind.gathers}
            assert forms <= {"bits", "scale"}
            assert "bits" in forms


def test_wide_scores_are_summed_as_bits():
    def kinds(out, without):
        _, found = cut(GraphSAGE(40, 64, out, 2, precision="bin"), without)
        return [call.operator for call in found[-1].calls]

    assert SUMMED_PRODUCT in kinds(60, (0,))
    assert SUMMED_PRODUCT not in kinds(60, ())
    assert SUMMED_PRODUCT not in kinds(4, (0,))


@pytest.mark.parametrize("size", [1, 31, 128])
def test_products_of_summed_bits_are_sums_of_products(size):
    generator = torch.Generator().manual_seed(size)
    edges = torch.randint(0, 300, (2, 2000), generator=generator)
    hub = torch.stack([torch.randint(0, 300, (40_000,)), torch.full((40_000,), 7)])
    graph = BitAdjacency.from_edge_index(torch.cat([edges, hub], dim=1), 301, normalize="mean")
    x = torch.ops.bitgnn.pack(torch.randn(301, size, generator=generator))
    w = torch.ops.bitgnn.pack(torch.randn(50, size, generator=generator))
    for scale in (None, torch.rand(50, generator=generator)):
        for bias in (None, torch.randn(50, generator=generator)):
            expected = torch.ops.bitgnn.bmm_bspmm_narrow(
                x, w, size, graph.rowptr, graph.indices, w_scale=scale, row=graph.row_scale,
                bias=bias,
            )  # fmt: skip
            assert torch.equal(summed_product(x, size, graph, w, scale, bias), expected)
