"""Distils a small encoder of transformers on GLUE's SST-2 or CoLA: how far BWTA is from floats.

One float teacher a seed, from random weights, trained by distill() itself, and a student for each
form; a form is a name, and after colons fields of the recipe (``bwta:learning_rate=0.003``).
Forms of ``falling.py`` lose levels in other ways: ``bits``, or ``mean``, ``none`` and ``search``.
Accuracies are those of the development set. Finished runs are kept in OUTPUT.jsonl, teachers,
students and checkpoints of others in OUTPUT.parts; none is done again.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from falling import WAYS, falling
from kept_runs import study_parser
from kept_students import add_student_options, mean_scores, run_students, students_of
from sentences import TokenSet, load_sentences, tokenize, trained_tokenizer
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

from bitgnn import BWTAConfig
from bitgnn.distillation.result import Distilled

FORMS = {
    "bwta": BWTAConfig(),
    "linear": BWTAConfig(attention=False),
    "signs": BWTAConfig(activation="sign"),
    **dict.fromkeys(WAYS, BWTAConfig()),
}
"""All layers and attention by falling levels; linear layers alone; signs in a single stage."""
TASKS, EPOCHS, CLASSES = ("sst2", "cola"), 8, 2
SIZES = {
    "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
    "intermediate_size": 1024, "max_position_embeddings": 64,
}  # fmt: skip
"""Of the encoder, as its configuration names them."""
VOCABULARY, BATCH = 8192, 256


class Sentences:
    """Sentences of similar length in batches of mappings, shuffled in training."""

    def __init__(self, part: TokenSet, is_training: bool) -> None:
        self.part, self.is_training = part, is_training
        self.lengths = part.lengths.cpu()

    def __len__(self) -> int:
        return -(-len(self.lengths) // BATCH)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        count = len(self.lengths)
        order = torch.randperm(count) if self.is_training else torch.arange(count)
        order = order[self.lengths[order].argsort(stable=True)]
        batches = order.split(BATCH)
        numbers = torch.randperm(len(batches)) if self.is_training else torch.arange(len(batches))
        for rows in (batches[number] for number in numbers.tolist()):
            length = int(self.lengths[rows].max())
            rows = rows.to(self.part.ids.device)
            yield {
                "input_ids": self.part.ids[rows, :length].long(),
                "attention_mask": (
                    torch.arange(length, device=rows.device) < self.part.lengths[rows, None]
                ).long(),
                "labels": self.part.labels[rows],
            }


@torch.no_grad()
def answers(model: Any, sentences: Sentences) -> tuple[Tensor, Tensor]:
    """Classes that a model gives, and labels."""
    found, labels = [], []
    for batch in sentences:
        labels.append(batch.pop("labels"))
        found.append(model(**batch).logits.argmax(1))
    return torch.cat(found), torch.cat(labels)


def encoder(vocabulary: int) -> nn.Module:
    """An encoder of fresh weights."""
    config = BertConfig(vocab_size=vocabulary, num_labels=CLASSES, **SIZES)
    return BertForSequenceClassification(config)


@lru_cache(1)
def tokens(
    root: str | None, limit: int | None, task: str = TASKS[0]
) -> tuple[int, tuple[TokenSet, ...]]:
    """How many tokens there are, and the sentences; of those to train on the first ones."""
    length = SIZES["max_position_embeddings"]
    parts = load_sentences(root, task)
    tokenizer = trained_tokenizer(parts[0], VOCABULARY, length)
    vocabulary, (train, *others) = tokenize(parts, tokenizer)
    return vocabulary, (TokenSet(*(tensor[:limit] for tensor in train)), *others)


def run(job: tuple[dict[str, Any], str | None, str], folder: Path) -> dict[str, Any]:
    """One teacher and its students."""
    case, root, device = job
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    vocabulary, parts = tokens(root, case["limit"], case["task"])
    training, validation, test = (Sentences(part.to(device), part is parts[0]) for part in parts)
    torch.manual_seed(case["seed"])

    def options(form: str) -> dict[str, Any]:
        name, *fields = form.split(":")
        return {
            "precision": FORMS[name], "epochs": case["epochs"], "validation": validation,
            "recipe": dict(field.split("=") for field in fields),
        }  # fmt: skip

    def judge(result: Distilled) -> dict[str, Any]:
        models = result.teacher, result.frozen, result.model
        (taught, y), (found, _), (trained, _) = (answers(model, test) for model in models)
        teacher, student = (float((one == y).float().mean()) for one in (taught, found))
        pair = {"teacher_mcc": correlation(taught, y), "test_mcc": correlation(found, y)}
        return {
            "teacher": teacher, "test": student, "gap": 100 * (teacher - student), **pair,
            "sentences": len(y), "differing": int((found != trained).sum()),
            "history": [row["val_score"] for row in result.history],
            "teacher_history": [row["val_score"] for row in result.teacher_history],
        }  # fmt: skip

    def within(form: str) -> contextlib.AbstractContextManager[None]:
        name = form.partition(":")[0]
        return falling(name) if name in WAYS else contextlib.nullcontext()

    model = encoder(vocabulary).to(device)
    return students_of(case, folder, model, training, options, judge, within)


def correlation(found: Tensor, y: Tensor) -> float:
    """Matthews' correlation of answers and labels, both 0 or 1; 0 where one is constant."""
    counts = torch.bincount(2 * y + found, minlength=4).double()
    (tn, fp), (fn, tp) = counts.view(2, 2).tolist()
    spread = ((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)) ** 0.5
    return (tp * tn - fp * fn) / spread if spread else 0.0


def cases(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every run."""
    for task, seed in itertools.product(arguments.tasks, range(arguments.seeds)):
        yield {
            "task": task, "seed": seed, "epochs": arguments.epochs, "limit": arguments.limit,
            "forms": arguments.forms,
        }  # fmt: skip


def main() -> int:
    """Entry point."""
    parser = study_parser(__doc__, "distilled_texts.json")
    parser.add_argument("--tasks", nargs="+", default=[TASKS[0]], choices=TASKS)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--limit", type=int, help="training sentences at most, to try it")
    add_student_options(parser, ["bwta"], seeds=3)
    arguments = parser.parse_args()
    return run_students(cases(arguments), run, mean_scores, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
