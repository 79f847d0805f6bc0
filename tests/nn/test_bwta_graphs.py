"""BWTA layers in programs that leave the number of tokens open: torch.export, torch.compile."""

import copy

import pytest
import torch
from compilers import compiles_training
from torch import Tensor, nn

import bitgnn
from bitgnn.nn import BWTALinear, BWTAMultiheadAttention, BWTASelfAttention

MAKERS = {
    "linear": lambda: BWTALinear(32, 7),
    "self-attention": lambda: BWTASelfAttention(32, 4, 2),
    "multihead": lambda: BWTAMultiheadAttention(32, 4, batch_first=True),
}


def operands(name: str, length: int) -> list[Tensor]:
    return [torch.randn(2, length, 32)] * (3 if name == "multihead" else 1)


@pytest.mark.parametrize("frozen", [False, True], ids=["trained", "frozen"])
@pytest.mark.parametrize("name", MAKERS)
def test_export(name, frozen) -> None:
    torch.manual_seed(0)
    layer = MAKERS[name]()
    layer(*operands(name, 40))
    layer.eval()
    if frozen:
        layer = bitgnn.freeze(layer).model
    # Words of up to 32 keys are one, and sizes of 1 are fixed when a program is traced.
    length = torch.export.Dim("length", min=33, max=4096)
    x = operands(name, 40)
    shapes = tuple({1: length} for _ in x)
    program = torch.export.export(layer, tuple(x), dynamic_shapes=shapes, strict=False)
    x = operands(name, 70)
    got, expected = program.module()(*x), layer(*x)
    pairs = zip(got, expected, strict=True) if isinstance(got, tuple) else [(got, expected)]
    assert all(torch.equal(a, b) for a, b in pairs)


@compiles_training
def test_compiled_training_of_any_length() -> None:
    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.attention = BWTALinear(16, 24), BWTASelfAttention(24, 3)
            self.down = BWTALinear(24, 8, activation="bool")

        def forward(self, x: Tensor) -> Tensor:
            return self.down(self.attention(self.up(x)).relu())

    model = Model()
    model(torch.randn(2, 5, 16))
    # One scale that training drove below what counts.
    with torch.no_grad():
        model.down.input_quantizer.scale.fill_(-0.1)
    twin = copy.deepcopy(model)
    compiled = torch.compile(twin, fullgraph=True, backend="aot_eager")
    # Compiled for the first shape, and then for any.
    for shape in ((2, 5, 16), (3, 7, 16), (4, 9, 16)):
        x = torch.randn(shape)
        expected, got = model(x), compiled(x)
        torch.testing.assert_close(got, expected)
        expected.square().sum().backward()
        got.square().sum().backward()
    for ours, theirs in zip(twin.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
