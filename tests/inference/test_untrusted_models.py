"""Descriptions of transformers from others: no code from elsewhere, no size without bound."""

import json

import pytest
import torch
from pretrained import batch, bert

import bitgnn
from bitgnn import FileError
from bitgnn._checksummed import sealed


@pytest.fixture
def saved(tmp_path):
    frozen = bitgnn.freeze(bitgnn.binarize(bert(), bitgnn.BWTAConfig(calibration=batch())))
    return frozen, bitgnn.save(frozen, tmp_path)


def changed(folder, **changes):
    file = folder / "model.json"
    description = json.loads(file.read_text())
    for key, value in changes.items():
        architecture = description["architecture"]
        (architecture if key in architecture else architecture["config"])[key] = value
    file.write_text(json.dumps(sealed(description)))


def test_known_classes_come_back(saved):
    frozen, folder = saved
    with torch.no_grad():
        assert torch.equal(bitgnn.load(folder)(**batch()).logits, frozen(**batch()).logits)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attn_implementation": "someone/kernel"}, "attn_implementation must be one of"),
        ({"_attn_implementation": "flash_attention_2"}, "_attn_implementation must be one of"),
        ({"text": {"attn_implementation": ["x"]}}, "attn_implementation must be one of"),
        ({"library": "os"}, "models of 'os' are not known"),
        ({"class": "AutoModel"}, "has no model|not among the models"),
        ({"class": "DetrForObjectDetection"}, "not among the models"),
        ({"class": 3}, "has no model"),
        ({"num_hidden_layers": 10**7}, "larger than its tensors"),
        ({"vocab_size": 60_000_000}, "larger than its tensors|damaged"),
        ({"vocab_size": 10**14}, "must be at most 67108864"),
        ({"max_position_embeddings": 10**12}, "must be at most 67108864"),
        ({"hidden_act": "nothing"}, "damaged checkpoint"),
        ({"config": None}, "damaged checkpoint"),
    ],
)
def test_odd_descriptions_are_refused(saved, changes, message):
    changed(saved[1], **changes)
    with pytest.raises(FileError, match=message) as caught:
        bitgnn.load(saved[1])
    assert str(saved[1] / "model.json") in str(caught.value)
