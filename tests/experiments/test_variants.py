"""Variants of students for studies: each trains differently, and what it gives is binary."""

import argparse
import importlib
import sys
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

import bitgnn
from bitgnn.distillation.recipe import DistillRecipe
from bitgnn.quantize import sgn
from bitgnn.quantize.looked_up_linear import looked_up_linear

EXPERIMENTS = Path(__file__).resolve().parents[2] / "scripts" / "experiments"
NODES, FEATURES, CLASSES, EPOCHS = 80, 40, 3, 6
RATE = 0.3
"""Weights leave the window of their gradient in a few epochs."""
sys.path.insert(0, str(EXPERIMENTS))
study, surrogates, losses, plain_loop, distilled = map(
    importlib.import_module, ("study", "surrogates", "losses", "plain_loop", "distilled")
)
sys.path.remove(str(EXPERIMENTS))
FORMS = [
    form
    for forms in study.STUDIES["variants"].values()
    for form in forms
    if any(field.partition("=")[0] in study.VARIANTS for field in form.split(":")[2:])
]


def graph() -> Data:
    """Three classes, sparse features that tell them, and edges mostly inside of classes."""
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(NODES) % CLASSES
    likely = torch.rand(CLASSES, FEATURES, generator=generator)[y] ** 3
    x = (torch.rand(NODES, FEATURES, generator=generator) < likely).float()
    pairs = torch.randint(NODES, (2, 8 * NODES), generator=generator)
    kept = (y[pairs[0]] == y[pairs[1]]) | (torch.rand(pairs.size(1), generator=generator) < 0.2)
    edges = torch.cat([pairs[:, kept], pairs[:, kept].flip(0)], 1)
    data = Data(x, edges, y=y)
    for name, part in (("train", 0), ("val", 1), ("test", 2)):
        data[f"{name}_mask"] = torch.arange(NODES) // CLASSES % 3 == part
    return data


@pytest.fixture(scope="module")
def taught():
    """The graph and a trained teacher."""
    torch.manual_seed(0)
    data = graph()
    model = plain_loop.Tutorial("GCNConv", [FEATURES, plain_loop.HIDDEN, CLASSES])
    return data, bitgnn.distill(model, data, epochs=30, trained=False).teacher


@pytest.fixture(scope="module")
def student_of(taught):
    """A student of a form, trained for a few epochs."""
    data, teacher = taught
    held = {}

    def student(form, log=None):
        if form not in held or log is not None:
            options = study.arguments_of(form)
            options["recipe"] = {"learning_rate": RATE, **options["recipe"]}
            with study.changed(form):
                held[form] = bitgnn.distill(
                    teacher, data, epochs=EPOCHS, trained=True, log=log, **options
                )
        return held[form]

    return student


def without_variants(form: str) -> str:
    kept = [f for f in form.split(":")[2:] if f.partition("=")[0] not in study.VARIANTS]
    return ":".join([*form.split(":")[:2], *kept])


@pytest.mark.parametrize("form", FORMS)
def test_students_learn_otherwise_and_freeze_alike(form, student_of, taught):
    data, _ = taught
    result, plain = student_of(form), student_of(without_variants(form))
    assert len(result.history) == EPOCHS
    losses = [[row["train_loss"] for row in one.history] for one in (result, plain)]
    same_sizes = [p.shape for p in result.model.parameters()] == [
        p.shape for p in plain.model.parameters()
    ]
    assert losses[0] != losses[1] or not same_sizes or differs(result.model, plain.model)
    with torch.no_grad():
        trained = result.model(data.x, data.edge_index).argmax(1)
    frozen = bitgnn.freeze(result.model, check=False)(data.x, data.edge_index).argmax(1)
    assert torch.equal(frozen, trained)


def differs(one, other):
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return any(not torch.equal(a, b) for a, b in pairs)


def test_the_script_runs_a_kind_of_variants(monkeypatch, tmp_path):
    data = graph()
    parts = {name: data[f"{name}_mask"] for name in ("train", "val", "test")}
    made = {"x": data.x, "edges": data.edge_index, "y": data.y, **parts}
    monkeypatch.setattr(distilled, "read", lambda *_: made)
    arguments = argparse.Namespace(
        study="variants", seeds=2, models=["GCNConv"], graphs=["Cora", "CS"], forms=None
    )
    cases = list(distilled.cases(arguments))
    assert len(cases) == 2 * 2 * len(study.STUDIES["variants"])
    assert {case["study"] for case in cases[:2]} == {"surrogate"}
    forms = ["bin:1:epochs=4", "bin:1:init=teacher:epochs=4", "bin:2:stages=full:epochs=4"]
    found = distilled.run(({**cases[0], "forms": forms}, None, "cpu"), tmp_path)
    assert list(found["students"]) == forms
    assert {student["differing_nodes"] for student in found["students"].values()} == {0}
    teachers = {student["teacher_test"] for student in found["students"].values()}
    assert len(teachers) == 1
    (row, *_) = distilled.summary([found])
    assert row["gaps"] == {"Cora": found["students"][forms[0]]["gap"]}


def test_contexts_leave_nothing_behind(student_of, taught):
    data, teacher = taught
    before = student_of("bin:1")
    for form in FORMS:
        with study.changed(form):
            pass
    again = bitgnn.distill(
        teacher, data, epochs=EPOCHS, trained=True, recipe={"learning_rate": RATE}
    )
    assert not differs(before.model, again.model)


def test_forms_name_variants_or_fields_of_a_recipe():
    for study_forms in study.STUDIES.values():
        for forms in study_forms.values():
            assert forms[0] == "bin"
            assert len(set(forms)) == len(forms)
            for form in forms:
                recipe = study.arguments_of(form)["recipe"]
                assert set(recipe) <= set(DistillRecipe.model_fields)
                DistillRecipe(**{"epochs": 1, "learning_rate": 0.01, **recipe})
    with pytest.raises(KeyError), study.changed("bin:1:surrogate=none"):
        pass


@pytest.mark.parametrize(
    ("slope", "function"),
    [
        ("bell", lambda u: 2 * torch.sigmoid(2 * u) * (1 + 2 * u * (1 - torch.sigmoid(2 * u)))),
        ("annealed_tanh", lambda u: torch.tanh(u)),
        ("power", lambda u: u.sign() * u.abs() ** 0.5),
        ("polynomial", lambda u: 2 * u - u.abs() * u),
    ],
)
def test_slopes_are_derivatives(slope, function):
    u = torch.linspace(-0.95, 0.95, 40, dtype=torch.float64, requires_grad=True)
    u_far = u[u.detach().abs() > 0.15].detach().requires_grad_()
    function(u_far).sum().backward()
    found = getattr(surrogates, slope)(u_far.detach(), 0.5)
    torch.testing.assert_close(found, u_far.grad)


def test_a_slope_stands_in_for_the_signs_own():
    x = torch.tensor([[-3.0, -0.5, 0.2, 2.0]], requires_grad=True)
    products = surrogates.looked_up_products
    with surrogates.sloped(lambda u, _: 10 * u):
        signs = products.binary_sign(x, "ste")
    signs.sum().backward()
    assert signs.tolist() == [[-1, -1, 1, 1]]
    rms = x.detach().square().mean().sqrt()
    torch.testing.assert_close(x.grad, 10 * x.detach() / rms)


def test_soft_weights_of_signs_are_the_product_itself(student_of, taught):
    layer = student_of("bin:1").model.convs[0]
    bits = layer.input_bits(taught[0].x)
    weight = layer.lin.weight.detach()
    product = looked_up_linear(taught[0].x, weight, bits, layer.input_bits.unit)
    by_values = layer.input_bits.unit * surrogates.values_of(bits) @ sgn(weight).t()
    torch.testing.assert_close(product, by_values, rtol=1e-4, atol=1e-5)


def test_equal_models_lose_nothing():
    scores, edges = torch.randn(9, 4), torch.randint(9, (2, 30))
    assert float(losses.embeddings(scores, scores, edges)) == 0.0
    assert float(losses.local_structure(scores, scores, edges)) == 0.0
    for loss in (losses.logits(), losses.softened(4.0), losses.correlations()):
        with loss:
            objective = losses.Classes()
            asked = objective.wanted(scores, 2.0)
            assert abs(float(objective.teacher(scores, asked))) < 1e-6
            assert float(objective.teacher(scores.flip(0), asked)) > 0.01


def test_stages_go_on_from_their_checkpoints(student_of, tmp_path):
    form = "bin:1:stages=full"
    first, again = (student_of(form, tmp_path) for _ in range(2))
    assert first.history == again.history
    assert not differs(first.model, again.model)
