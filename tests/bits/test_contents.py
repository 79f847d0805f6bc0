"""Bytes of tensors that are told from those of a moment ago, whoever wrote to them."""

import gc

import pytest
import torch

from bitgnn.bits import contents as module
from bitgnn.bits.contents import Contents
from bitgnn.bits.tensor_version import TensorMemory, Watch
from bitgnn.nn.host_state import HostState

DTYPES = [torch.int64, torch.int32, torch.float32, torch.float64, torch.bfloat16, torch.uint8]
FORMS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.t(),
    "rows left out": lambda x: x[::2],
    "columns left out": lambda x: x[:, 1:-1],
    "expanded": lambda x: x[:1].expand(5, -1),
    "one row": lambda x: x[3],
}


@pytest.fixture(params=[module.COPIED_BYTES, -1], ids=["copied", "hashed"])
def limit(request, monkeypatch):
    monkeypatch.setattr(module, "COPIED_BYTES", request.param)
    monkeypatch.setattr(module, "CHUNK", 50)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_every_single_write_is_noticed(limit, dtype, form):
    whole = torch.randint(0, 100, (6, 23)).to(dtype)
    x = FORMS[form](whole)
    held = Contents((x, None))
    assert held.are_those_of((x, None))
    unseen = x.data
    for place in range(0, x.numel(), 7):
        index = torch.unravel_index(torch.tensor(place), x.shape)
        before = unseen[index].clone()
        unseen[index] = before + 1
        assert not held.are_those_of((x, None))
        unseen[index] = before
        assert held.are_those_of((x, None))
    untouched = whole.clone()
    whole.add_(1)
    assert not held.are_those_of((x, None))
    assert held.are_those_of((FORMS[form](untouched), None))


def test_exchanged_and_moved_values_are_noticed(limit):
    x = torch.arange(1000).view(2, 500)
    held = Contents((x,))
    assert not held.are_those_of((x.flip(0),))
    assert not held.are_those_of((x.roll(1, 1),))
    assert not held.are_those_of((x.roll(50, 1),))
    assert not held.are_those_of((x[:, :-1].contiguous(),))
    swapped = x.clone()
    swapped[0, [3, 400]] = swapped[0, [400, 3]]
    assert not held.are_those_of((swapped,))


def test_nan_and_signed_zero_are_bytes(limit):
    x = torch.tensor([float("nan"), 0.0, -1.0])
    held = Contents((x,))
    assert held.are_those_of((x.clone(),))
    assert not held.are_those_of((torch.tensor([float("nan"), -0.0, -1.0]),))


def test_empty_tensors_and_gradients(limit):
    empty, weight = torch.zeros(2, 0), torch.rand(3, requires_grad=True)
    held = Contents((empty, weight))
    assert held.are_those_of((empty, weight))
    weight.detach().numpy()[0] = 7
    assert not held.are_those_of((empty, weight))


def test_nothing_is_asked_of_other_devices():
    x = torch.zeros(3, device="meta")
    assert Contents((x,)).are_those_of((x,))


@pytest.mark.parametrize("write", ["numpy", "data", "storage", "dlpack"])
def test_memories_and_watches_notice_writes_that_count_nowhere(write):
    x = torch.arange(40).view(2, 20)
    memory, made = TensorMemory(), []

    def get():
        return memory.get((x, None), 1, lambda: made.append(1) or x.sum().item())

    watch, blind = Watch((x,), reads_bytes=True), Watch((x,))
    assert [get(), get()] == [780, 780]
    assert watch.unchanged((x,))
    version = x._version
    if write == "numpy":
        x.numpy()[1, 3] = 0
    elif write == "data":
        x.data[1, 3] = 0
    elif write == "storage":
        torch.tensor([], dtype=torch.int64).set_(x.untyped_storage())[23] = 0
    else:
        torch.from_dlpack(torch.utils.dlpack.to_dlpack(x))[1, 3] = 0
    assert x._version == version
    assert not watch.unchanged((x,))
    assert blind.unchanged((x,))
    assert [get(), get()] == [757, 757]
    assert len(made) == 2
    x = watch = blind = None
    gc.collect()
    assert len(memory) == 0


def test_scalars_on_the_host_follow_every_write():
    state, first, second = HostState(), torch.tensor(1.0), torch.tensor(2.0)
    assert state.read(first, second) == [1.0, 2.0]
    first.add_(1.0)
    assert state.read(first, second) == [2.0, 2.0]
    second.data.fill_(7.0)
    assert state.read(first, second) == [2.0, 7.0]
    first.numpy()[...] = 5.0
    assert state.read(first, second) == [5.0, 7.0]
