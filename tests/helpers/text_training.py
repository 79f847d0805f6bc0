"""Tiny tasks for tests of training on text."""

import torch

from bitgnn.data.tokens import CharacterData, TokenData, TokenSet
from bitgnn.models import BertClassifier, Decoder
from experiments.text.characters import CharacterTask
from experiments.text.recipe import DecoderRecipe, Distillation, TextRecipe
from experiments.text.sentences import SentenceTask

VOCABULARY = 30
SIZES = {"layers": 2, "width": 32, "heads": 2, "inner": 32, "length": 40}
DECODER_SIZES = {"layers": 2, "width": 32, "heads": 2, "inner": 32, "length": 12}
CPU = torch.device("cpu")


def make_tokens(device=CPU, metric="accuracy"):
    """Sentences of 3 to 40 tokens; the class says whether token 5 is among them."""
    generator = torch.Generator().manual_seed(0)

    def part(count):
        lengths = torch.randint(3, 41, (count,), generator=generator)
        ids = torch.randint(6, VOCABULARY, (count, 40), generator=generator)
        labels = torch.arange(count) % 2
        ids[labels == 1, 1] = 5
        ids[torch.arange(40) >= lengths[:, None]] = 0
        ids[:, 0] = 2
        return TokenSet(ids.int(), lengths, labels)

    data = TokenData("made", part(150), part(40), part(30), VOCABULARY, ("without", "with"), metric)
    return data.to(device)


def make_characters(device=CPU):
    """A text of period 7."""
    text = torch.arange(900) % 7
    parts = (text[:600], text[600:750], text[750:])
    return CharacterData("\ufffdabcdef", *(part.to(torch.uint8) for part in parts)).to(device)


def recipe(**changes):
    settings = {"precision": "fp32", "epochs": 3, "batch_size": 16, "learning_rate": 2e-3}
    if changes.get("precision", "fp32") != "fp32":
        settings |= {"teacher": "fp32", "distill": Distillation()}
    return TextRecipe.model_validate({**settings, **changes})


def decoder_recipe(**changes):
    settings = {
        "precision": "fp32", "epochs": 3, "batch_size": 8, "steps": 10, "learning_rate": 3e-3,
    }  # fmt: skip
    if changes.get("precision", "fp32") != "fp32":
        settings |= {"teacher": "fp32", "distill": Distillation()}
    return DecoderRecipe.model_validate({**settings, **changes})


def encoder(precision="fp32", device=CPU, dropout=0.0):
    torch.manual_seed(0)
    model = BertClassifier(VOCABULARY, 2, **SIZES, precision=precision, dropout=dropout)
    return model.to(device)


def sentence_task(wanted, device=CPU, teacher=None):
    model = encoder(wanted.precision, device, wanted.dropout)
    if teacher is None and wanted.teacher is not None:
        teacher = encoder("fp32", device)
    return SentenceTask(model, make_tokens(device), wanted, teacher)


def character_task(wanted, device=CPU, only=None, data=None):
    torch.manual_seed(0)
    model = Decoder(7, **DECODER_SIZES).to(device)
    teacher = None
    if wanted.teacher is not None:
        teacher = Decoder(7, **DECODER_SIZES).to(device)
    text = make_characters(device) if data is None else data
    return CharacterTask(model, text, wanted, teacher, only)
