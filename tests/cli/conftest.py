"""Commands set torch's threads, which other tests need as they were."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _keep_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
