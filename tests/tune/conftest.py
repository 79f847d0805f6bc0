"""The small workload and its graph."""

import pytest
from small_workload import small_data, small_workload


@pytest.fixture
def data():
    return small_data()


@pytest.fixture
def workload(data):
    return small_workload(data)
