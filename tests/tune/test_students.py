"""Students: where they are kept, and that going on changes nothing."""

import pytest
import torch
from small_workload import small_data
from torch_geometric.nn import GCN

from bitgnn import FileError, Plan
from bitgnn.convert.swap.graphs import own_letters
from bitgnn.tune.students import Students
from bitgnn.tune.workload import Workload

FEATURES, CLASSES = 70, 4


@pytest.fixture
def make(tmp_path):
    data = small_data()
    torch.manual_seed(0)
    model = GCN(FEATURES, 8, 2, CLASSES)
    return lambda: Students(Workload.of(model, data), data, tmp_path, epochs=2)


def weights(student):
    return student.model.state_dict()


def test_another_budget_goes_on_with_the_first_one(make, tmp_path):
    students = make()
    with pytest.warns(UserWarning, match="at chance"):  # its labels are drawn
        first = students.teach(1, budget=60.0)
    plan = Plan({"convs.0": "FBF+FFF", "convs.1": "FBF+FFF"})
    other = students.teach(2, plan)
    assert students.taught == 2
    assert own_letters(other.model) == plan.letters
    assert other.model.convs[0].out_channels == 16
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"x1-bin", "x2-FBF-FFF_FBF-FFF"}
    again = make()
    with pytest.warns(UserWarning, match="at chance"):
        same = again.teach(1, budget=1e-9)
    assert all(value.equal(weights(same)[name]) for name, value in weights(first).items())
    same = again.teach(2, plan)
    assert all(value.equal(weights(same)[name]) for name, value in weights(other).items())
    (tmp_path / "x1-bin" / "budget.json").write_text('{"seconds": "x"}')
    with pytest.raises(FileError, match=r"budget\.json: is damaged"):
        make().teach(1)


def test_letters_of_many_layers_are_told_by_a_checksum(make, monkeypatch, tmp_path):
    monkeypatch.setattr("bitgnn.tune.students.LONGEST", 3)
    students = make()
    with pytest.warns(UserWarning, match="at chance"):
        students.teach(1, Plan({"convs.0": "FBF+FFF"}))
    (folder,) = tmp_path.iterdir()
    assert len(folder.name) == len("x1-") + 64
