"""Distillation of states and attention, warm-up and rates of scales, against their formulas."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification

import bitgnn
from bitgnn.data import load_digits_graph
from bitgnn.distillation import DistillError
from bitgnn.distillation.inside import Inside, attention_loss, hidden_loss
from bitgnn.distillation.recipe import DistillRecipe
from bitgnn.distillation.session import Fit
from bitgnn.nn.bwta_linear import ActivationQuantizer

RECIPE = DistillRecipe(epochs=4, learning_rate=1e-3, hidden_weight=0.5, attention_weight=2.0)


def bert(attention="eager"):
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 16, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 64, "max_position_embeddings": 8,
    }  # fmt: skip
    config = BertConfig(**sizes)
    config._attn_implementation = attention
    return BertForSequenceClassification(config).eval()


def sentences(rows, seed=0):
    """Random tokens; the second one tells the class."""
    ids = torch.randint(4, 16, (rows, 6), generator=torch.Generator().manual_seed(seed))
    y = torch.arange(rows) % 2
    ids[:, 1] = 2 + y
    mask = torch.ones_like(ids)
    mask[::3, 4:] = 0
    names = ("input_ids", "attention_mask", "labels")
    return [dict(zip(names, row, strict=True)) for row in zip(ids, mask, y, strict=True)]


def batch(rows=4):
    found = next(iter(DataLoader(sentences(rows), rows)))
    del found["labels"]
    return found


def test_losses_are_the_formulas():
    a, b = torch.rand(3, 2, 5, 4), torch.rand(3, 2, 5, 4)
    expected = 0.0
    for ours, theirs in zip(a, b, strict=True):
        q, p = ((m**2).sum(0) for m in (ours, theirs))
        difference = q / (q**2).sum().sqrt() - p / (p**2).sum().sqrt()
        expected += float((difference**2).sum().sqrt()) / 3
    assert float(attention_loss(a, b)) == pytest.approx(expected, rel=1e-5)
    assert float(attention_loss(a, 3 * a)) == pytest.approx(0, abs=1e-6)
    assert float(hidden_loss(a, b)) == pytest.approx(float(((a - b) ** 2).mean()), rel=1e-5)
    zeros = torch.zeros(1, 1, 2, 2, requires_grad=True)
    attention_loss(zeros, a[:1, :1, :2, :2]).backward()
    assert zeros.grad.isfinite().all()


def test_a_step_compares_blocks_and_attention_of_both():
    teacher, data = bert(), batch()
    student = bitgnn.binarize(bert(), bitgnn.BWTAConfig(calibration=data, level=4))
    inside = Inside(teacher, student, data, RECIPE)
    results = []
    for model in (student, teacher):
        with inside.watching(model), torch.set_grad_enabled(model is student):
            model(**data)
        with torch.no_grad():
            results.append(model(**data, output_attentions=True, output_hidden_states=True))
    loss = inside.loss()
    ours, theirs = results
    pairs = zip(ours.attentions, theirs.attentions, strict=True)
    attention = sum(float(attention_loss(*pair)) for pair in pairs) / 2
    # Parts of BERT's blocks: attention, a linear layer, and another one with the block's result.
    inner = []
    for model in (student, teacher):
        seen = []
        for layer in model.bert.encoder.layer:
            for part in (layer.attention, layer.intermediate):
                part.register_forward_hook(lambda _m, _x, out, seen=seen: seen.append(out))
        with torch.no_grad():
            model(**data)
        inner.append([out[0] if isinstance(out, tuple) else out for out in seen])
    blocks = [r.hidden_states[1:] for r in results]
    hidden = [
        float(hidden_loss(a, b))
        for kinds in (blocks, blocks, inner)
        for a, b in zip(*kinds, strict=True)
    ]
    expected = 2.0 * attention + 0.5 * sum(hidden) / len(hidden)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    loss.backward()
    for name in ("query", "value"):  # before and behind the probabilities
        weight = getattr(student.bert.encoder.layer[0].attention.self, name).weight
        assert weight.grad.abs().sum() > 0
    assert float(inside.loss()) == 0  # nothing is kept


def test_a_student_learns_from_the_inside():
    data = DataLoader(sentences(64), 16)
    config = bitgnn.BWTAConfig(level=1)

    def taught(**recipe):
        given = {"validation": sentences(32, 1), "epochs": 4, "trained": True, "recipe": recipe}
        teacher = bert()
        with torch.no_grad():
            # Whether the second token is 2 or 3: knows something, so that it is asked.
            teacher.bert.embeddings.word_embeddings.weight[2].mul_(-20)
        return bitgnn.distill(fitted(teacher), data, config, **given)

    plain = taught()
    found = taught(hidden_weight=1.0, attention_weight=1.0, teacher_weight=0.0)
    assert all(math.isfinite(row["train_loss"]) for row in found.history)
    example = batch(8)
    with torch.no_grad():
        states = [
            r.model(**example, output_hidden_states=True).hidden_states[-1] for r in (plain, found)
        ]
        wanted = found.teacher(**example, output_hidden_states=True).hidden_states[-1]
    assert hidden_loss(states[1], wanted) < 0.8 * hidden_loss(states[0], wanted)


def fitted(model):
    """A model after some steps on the labels."""
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(6):
        for given in DataLoader(sentences(64), 16):
            optimizer.zero_grad()
            model(**given).loss.backward()
            optimizer.step()
    return model


def test_rates_rise_and_fall():
    recipe = DistillRecipe(epochs=10, learning_rate=1.0, schedule="cosine", warm_up=0.2)
    rates = [recipe.rate(epoch) for epoch in range(10)]
    falling = [(1 + math.cos(math.pi * e / 8)) / 2 for e in range(8)]
    assert rates == pytest.approx([1 / 3, 2 / 3, *falling])
    constant = DistillRecipe(epochs=4, learning_rate=0.5, warm_up=0.25)
    assert [constant.rate(epoch) for epoch in range(4)] == [0.25, 0.5, 0.5, 0.5]


def test_scales_have_a_rate_of_their_own():
    student = bitgnn.binarize(bert(), bitgnn.BWTAConfig(calibration=batch()))
    recipe = DistillRecipe(epochs=2, learning_rate=2e-5, scale_rate=1e-3, schedule="cosine")
    session = Fit(student, recipe, {})
    scales = {id(q.scale) for q in student.modules() if isinstance(q, ActivationQuantizer)}
    for epoch in (0, 1):
        session.set_rate(recipe.rate(epoch))
        share = recipe.rate(epoch) / 2e-5
        for group in session.optimizer.param_groups:
            of_scales = {id(parameter) in scales for parameter in group["params"]}
            assert len(of_scales) == 1
            highest = 1e-3 if of_scales == {True} else 2e-5
            assert group["lr"] == pytest.approx(highest * share)


class Plain(nn.Module):
    """A model without blocks."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(16, 8)
        self.first, self.inner, self.last = (nn.Linear(8, n) for n in (8, 8, 2))

    def forward(self, ids):
        return self.last(self.inner(self.first(self.tokens(ids).mean(1))))


@pytest.mark.parametrize(
    ("model", "recipe", "message"),
    [
        (Plain(), {"hidden_weight": 1.0}, "without blocks in a ModuleList, got 1 for Plain"),
        (Plain(), {"attention_weight": 0.5}, "gives no attentions, got 0.5 for Plain"),
        (bert("sdpa"), {"attention_weight": 1.0}, 'with attn_implementation="eager"'),
        (Plain(), {"hidden_weight": -1.0}, "recipe: hidden_weight: .* greater than or equal to 0"),
        (Plain(), {"warm_up": 1.0}, "recipe: warm_up: .* less than 1"),
        (Plain(), {"scale_rate": 0.0}, "recipe: scale_rate: .* greater than 0"),
    ],
)
def test_recipes_that_do_not_fit(model, recipe, message):
    data = DataLoader(sentences(16), 8)
    with pytest.raises(DistillError, match=message):
        bitgnn.distill(model, data, validation=data, epochs=1, trained=None, recipe=recipe)


def test_graphs_have_no_inside():
    from torch_geometric.nn import GCN

    data = load_digits_graph()
    model = GCN(data.num_features, 8, 2, 10)
    with pytest.raises(DistillError, match="must be 0 for graphs"):
        bitgnn.distill(model, data, epochs=1, trained=True, recipe={"hidden_weight": 1.0})
