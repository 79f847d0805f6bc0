"""Memory: peaks follow allocations and frees; stored tensors are counted once each."""

from dataclasses import dataclass

import torch

from bitgnn.measure.memory import peak_allocation, stored_bytes

MEGABYTE = 1_000_000


def megabytes(count):
    return torch.ones(count * MEGABYTE, dtype=torch.uint8)


def test_peak_is_what_lived_at_once():
    def run():
        first = megabytes(3)
        del first
        second, third = megabytes(2), megabytes(4)
        return second, third

    assert 6 * MEGABYTE <= peak_allocation(run) < 6.1 * MEGABYTE
    existing = megabytes(50)  # before, and not counted
    assert MEGABYTE <= peak_allocation(lambda: existing[:MEGABYTE] + 1) < 2 * MEGABYTE


@dataclass
class Holder:
    tensor: torch.Tensor
    other: object


def test_stored_bytes_look_into_objects_and_count_storages_once():
    tensor = megabytes(2)
    holder = Holder(tensor, {"view": tensor[:5], "more": [megabytes(1)]})
    assert stored_bytes(holder, tensor) == 3 * MEGABYTE
    assert stored_bytes(torch.nn.Linear(10, 5)) == 4 * (50 + 5)
    csr = torch.sparse_csr_tensor(torch.arange(7), torch.arange(6), torch.ones(6), (6, 6))
    assert stored_bytes(csr) == 8 * (7 + 6) + 4 * 6
    assert stored_bytes(torch.eye(6).to_sparse_coo()) == 8 * 2 * 6 + 4 * 6
