"""One thread for every test."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread():
    """Tiny operators on several threads wait for each other, on a busy machine for long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
