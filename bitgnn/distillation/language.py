"""Causal language models: batches of tokens whose next ones are the labels, and perplexity."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.distillation.batches import LABELS, Texts
from bitgnn.distillation.calling import MATRIX, DistillError, call, moved, tried
from bitgnn.distillation.objectives import Classes, Objective
from bitgnn.distillation.problems import Part, Results
from bitgnn.nn.multistage import DECODER_LEVELS

IGNORED = -100
"""Label of tokens that are not to be predicted, such as padding, as in torch and transformers."""
MOST_LOSS = 50.0
"""Loss beyond which perplexity is not told apart, so that it stays finite."""
TOKENS = 3


class NextToken(Classes):
    """Tokens as classes; the score is minus the perplexity ``exp(mean loss of a token)``.

    In evaluation scores are the logarithms of the right tokens' probabilities ``[n]``, since those
    of all tokens of a text and a vocabulary are many.
    """

    metric = "minus perplexity"
    scale = 1.0

    def labels(self, scores: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy, of logarithms of probabilities minus their mean."""
        return -scores.mean() if scores.dim() == 1 else super().labels(scores, y)

    def score(self, scores: Tensor, y: Tensor) -> Tensor:
        """Minus the perplexity."""
        return -self.labels(scores, y).double().clamp(max=MOST_LOSS).exp()

    def successes(self, scores: Tensor, y: Tensor) -> Any:
        """None: perplexity is no mean over tokens."""

    def chance(self, y: Tensor) -> float:
        """That of constant scores, the shares of the tokens."""
        return -math.exp(min(self.constant(y), MOST_LOSS))


class NextTokens(Texts):
    """Mappings of ``input_ids`` and ``labels`` ``[B, T]``, the same tokens or -100.

    Labels are those of transformers: each token's scores are for the label behind it, and -100 is
    left out, in training and evaluation. Levels fall as those of BWTA's language models.
    """

    levels = DECODER_LEVELS

    def columns(self, model: nn.Module, y: Tensor) -> int:
        """Size of the vocabulary."""
        found = tried(model, self.example)
        if found.dim() != TOKENS or found.shape[:2] != y.shape:
            raise DistillError(
                f"model must return scores [{y.size(0)}, {y.size(1)}, V] of next tokens, got "
                f"{list(found.shape)}"
            )
        return found.size(2)

    def objective_for(self, labels: Sequence[Tensor]) -> Objective:
        """Perplexity, of validation texts with a token to predict."""
        if not any(bool((y[:, 1:] != IGNORED).any()) for y in labels[1:]):
            raise DistillError("validation must have a label behind a token, got -100 alone")
        return NextToken()

    def split(self, batch: Any, name: str) -> tuple[dict[str, Tensor], Tensor]:
        """Tensors by name, and labels."""
        inputs, y = super().split(batch, name)
        if not is_tokens(batch) or y.dim() != MATRIX:
            raise DistillError(
                f"{name}: labels of a language model must be the tokens [B, T] of input_ids, or "
                f"{IGNORED}, got {list(y.shape)}"
            )
        return inputs, y

    def scores(self, model: nn.Module, part: Part) -> Tensor:
        """``[B * (T - 1), V]`` scores of all tokens but the first."""
        return call(model, part.data)[:, :-1].flatten(0, 1)

    def parts(self) -> Iterator[Part]:
        """The loader's batches with a token to predict."""
        for batch in self.loader:
            part = self._part(batch, "data")
            if part.y.numel():
                yield part

    def results(self, model: nn.Module) -> Results:
        """Logarithms of the validation tokens' probabilities ``[n]``, and the tokens."""
        found, labels = [], []
        for batch in self.validation:
            part = self._part(batch, "validation")
            logs = -functional.cross_entropy(
                self.scores(model, part)[part.rows].float(), part.y, reduction="none"
            )
            found.append(logs)
            labels.append(part.y)
        return {"val": (torch.cat(found), torch.cat(labels))}

    def _part(self, batch: Any, name: str) -> Part:
        inputs, y = self.split(batch, name)
        y = y[:, 1:].flatten()
        rows = (y != IGNORED).nonzero().flatten()
        y = y[rows]
        if y.device.type == "cpu":
            self.objective.check(y, self.outputs, name)
        rows = rows.to(self.device)
        return Part(moved(inputs, self.device), rows, rows, y.to(self.device))


def is_tokens(sample: Mapping[str, Any]) -> bool:
    """True for a sample or batch of tokens whose labels are these tokens, or -100."""
    ids = sample.get("input_ids")
    y = next((sample[name] for name in LABELS if name in sample), None)
    if not (isinstance(ids, Tensor) and isinstance(y, Tensor)) or y.is_floating_point():
        return False
    return y.dim() > 0 and y.shape == ids.shape and bool(((y == ids) | (y == IGNORED)).all())
