"""distill() of causal language models: labels, perplexity, stages, and frozen forms."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

import bitgnn
from bitgnn.distillation import DistillError
from bitgnn.distillation.language import IGNORED, NextToken, NextTokens
from bitgnn.nn.multistage import DECODER_LEVELS, activation_quantizers

VOCABULARY, LENGTH = 12, 10


def texts(rows, seed=0):
    """Each token is one or two above the one before it; the ends of some rows are padding."""
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randint(1, 3, (rows, LENGTH), generator=generator)
    ids = 1 + steps.cumsum(1) % (VOCABULARY - 1)
    mask = torch.ones_like(ids)
    mask[::3, LENGTH - 2 :] = 0
    labels = torch.where(mask > 0, ids, IGNORED)
    names = ("input_ids", "attention_mask", "labels")
    return [dict(zip(names, row, strict=True)) for row in zip(ids, mask, labels, strict=True)]


def llama():
    """A small decoder of transformers with random weights."""
    torch.manual_seed(0)
    sizes = {
        "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 1, "num_attention_heads": 2, "pad_token_id": 0,
    }  # fmt: skip
    return LlamaForCausalLM(LlamaConfig(**sizes))


class OwnDecoder(nn.Module):
    """The next token's scores from the present one alone."""

    def __init__(self, vocabulary=VOCABULARY):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, 16)
        self.layers = nn.ModuleList([nn.Linear(16, 16)])
        self.head = nn.Linear(16, vocabulary)

    def forward(self, ids):
        x = self.tokens(ids)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def by_hand(model, samples):
    """Mean loss of the tokens that have a label, from transformers' own loss."""
    batch = next(iter(DataLoader(samples, len(samples))))
    with torch.no_grad():
        return float(model(**batch).loss)


@pytest.fixture(scope="module")
def taught():
    data = DataLoader(texts(256), 16, shuffle=True)
    return bitgnn.distill(llama(), data, validation=texts(64, 1), epochs=10)


def test_a_decoder_is_trained_and_taught_in_falling_levels(taught):
    assert taught.metric == "minus perplexity"
    validation = texts(64, 1)
    for model, scores in ((taught.teacher, taught.teacher_scores), (taught.model, taught.scores)):
        assert -scores.val == pytest.approx(math.exp(by_hand(model, validation)), rel=1e-5)
    assert taught.gap == pytest.approx(taught.teacher_scores.val - taught.scores.val)
    assert taught.gap_error is None
    # Two tokens are equally likely: 2 is the best perplexity; that of shares is about 11.
    assert 2 * 0.95 < -taught.teacher_scores.val < 3
    assert -taught.scores.val < 6
    assert [row["stage"] for row in taught.history] == [0, 0, 1, 2, 3, 4, 4, 4, 4, 4]
    assert {q.level for q in activation_quantizers(taught.model).values()} == {1}


def test_levels_are_those_of_the_paper():
    assert [2 * level + 1 for level in DECODER_LEVELS] == [19, 15, 11, 7, 3]


def test_a_taught_decoder_freezes(taught):
    batch = next(iter(DataLoader(texts(8, 2), 8)))
    del batch["labels"]
    with torch.no_grad():
        expected = taught.model(**batch).logits
        assert torch.equal(bitgnn.freeze(taught.model)(**batch).logits, expected)


def test_a_trained_decoder_teaches_as_it_is(taught):
    teacher = copy.deepcopy(taught.teacher)
    data = DataLoader(texts(32), 16)
    config = bitgnn.BWTAConfig(layers=["model.layers.0.mlp.up_proj"])
    found = bitgnn.distill(teacher, data, config, validation=texts(64, 1), epochs=1)
    assert found.teacher_history == []
    assert "trained, by minus perplexity" in found.judgement
    assert type(found.model.model.layers[0].mlp.down_proj) is nn.Linear


def test_an_own_decoder_is_taught():
    data = DataLoader(texts(512), 8, shuffle=True)
    found = bitgnn.distill(OwnDecoder(), data, validation=texts(32, 1), epochs=8)
    assert found.teacher_history
    assert -found.teacher_scores.val < 10  # of shares: about 11
    assert -found.scores.val < 10


def test_losses_are_of_labelled_next_tokens():
    data = DataLoader(texts(6), 6)
    problem = NextTokens(data, OwnDecoder(), texts(4, 1), 0)
    model, teacher = OwnDecoder(), OwnDecoder()
    (part,) = problem.parts()
    batch = next(iter(data))
    y = batch["labels"][:, 1:].reshape(-1)
    kept = y != IGNORED
    logs, wanted = (
        functional.log_softmax(m(batch["input_ids"])[:, :-1].reshape(-1, VOCABULARY), -1)[kept]
        for m in (model, teacher)
    )
    rows = problem.scores(model, part)[part.rows]
    objective = problem.objective
    expected = -logs[torch.arange(len(logs)), y[kept]].mean()
    assert torch.allclose(objective.labels(rows, part.y), expected)
    asked = objective.wanted(problem.scores(teacher, part)[part.rows], 1.0)
    divergence = (wanted.exp() * (wanted - logs)).sum(1).mean()
    assert torch.allclose(objective.teacher(rows, asked), divergence, atol=1e-6)
    shares = torch.bincount(y[kept]).double() / kept.sum()
    constant = (shares[shares > 0] ** -shares[shares > 0]).prod()
    assert objective.chance(part.y) == pytest.approx(-float(constant))


def test_perplexity_is_finite():
    y = torch.tensor([0, 1])
    score = NextToken().score(torch.tensor([-1e4, -1e4]), y)
    assert score == -torch.tensor(50.0).double().exp()
    assert NextToken().score(torch.tensor([-1.0, -3.0]), y) == pytest.approx(-math.exp(2))


IDS = torch.randint(1, VOCABULARY, (4, 6), generator=torch.Generator().manual_seed(1))
GOOD = {"input_ids": IDS, "labels": IDS}


class Scores(nn.Linear):
    """One row of scores a text."""

    def forward(self, ids):
        return super().forward(ids.float())


@pytest.mark.parametrize(
    ("model", "batches", "validation", "message"),
    [
        (Scores(6, 2), [GOOD], [GOOD], r"scores \[4, 6, V\] of next tokens, got \[4, 2"),
        (OwnDecoder(), [GOOD], [{**GOOD, "labels": IDS + 1}], r"tokens \[B, T\] of input_ids"),
        (OwnDecoder(), [GOOD], [{"input_ids": IDS, "labels": 0 * IDS - 100}], "got -100 alone"),
        (OwnDecoder(5), [GOOD], [GOOD], "model does not take data, input_ids"),
        (OwnDecoder(), [{"input_ids": IDS[0], "labels": IDS[0]}], [GOOD], r"or -100, got \[6\]"),
    ],
)
def test_tokens_that_nothing_can_be_learnt_from(model, batches, validation, message):
    data, held = (DataLoader(rows, batch_size=None) for rows in (batches, validation))
    with pytest.raises(DistillError, match=message):
        bitgnn.distill(model, data, validation=held, epochs=1)
