"""distill() of images and texts: what is learnt, the stages, frozen forms, and bad input."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from transformers import BertConfig, BertForSequenceClassification

import bitgnn
from bitgnn.distillation import DistillError, fitting
from bitgnn.distillation.stages import use_float_weights
from bitgnn.nn import BinaryConv2d, BinaryLinear

CLASSES, TOKENS = 4, 8
GUESSED = 0.25


def pictures(rows, seed=0):
    """Noise, brighter in the quarter that is the class."""
    y = torch.arange(rows) % CLASSES
    x = torch.randn(rows, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
    for label in range(CLASSES):
        top, left = 4 * (label // 2), 4 * (label % 2)
        x[y == label, :, top : top + 4, left : left + 4] += 1
    return TensorDataset(x, y)


def network(outputs=CLASSES):
    """Two convolutions and a linear layer, weights of one seed."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, outputs),
    )  # fmt: skip


def sentences(rows, seed=0):
    """Random tokens; the second one tells the class."""
    ids = torch.randint(4, 16, (rows, 6), generator=torch.Generator().manual_seed(seed))
    y = torch.arange(rows) % 2
    ids[:, 1] = 2 + y
    mask = torch.ones_like(ids)
    mask[::3, 4:] = 0
    names = ("input_ids", "attention_mask", "labels")
    return [dict(zip(names, row, strict=True)) for row in zip(ids, mask, y, strict=True)]


def bert():
    """A small encoder of transformers."""
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 16, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 64, "max_position_embeddings": TOKENS,
    }  # fmt: skip
    return BertForSequenceClassification(BertConfig(**sizes))


class FeedForward(nn.Module):
    """Two linear layers with a shortcut around them."""

    def __init__(self, width, inner):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner, self.outer = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        return x + self.outer(torch.relu(self.inner(self.norm(x))))


class OwnEncoder(nn.Module):
    """A user's own encoder: layers on each token, then the mean of those that are there."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(16, 32)
        self.layers = nn.ModuleList([FeedForward(32, 64)])
        self.scores = nn.Linear(32, 2)

    def forward(self, ids, mask):
        assert mask.dtype == torch.bool
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.scores((x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))


def own_encoder():
    torch.manual_seed(0)
    return OwnEncoder()


@pytest.fixture(scope="module")
def taught_images():
    batches = DataLoader(pictures(256), 32, shuffle=True)
    return bitgnn.distill(network(), batches, validation=pictures(128, 1), epochs=8)


def test_a_network_of_images_is_trained_and_taught(taught_images):
    found = taught_images
    assert found.metric == "accuracy"
    assert found.teacher_scores.val > 0.8
    assert found.scores.val > 0.8
    assert [row["stage"] for row in found.history] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [row["epoch"] for row in found.history] == list(range(8))
    last = [row["val_score"] for row in found.history[4:]]
    assert max(last) == pytest.approx(found.scores.val)
    kinds = [type(layer) for layer in found.model.modules() if isinstance(layer, BinaryConv2d)]
    assert kinds == [BinaryConv2d]
    assert "frozen" in found.cost_table()
    x, y = pictures(128, 1).tensors
    scores = bitgnn.freeze(found.model)(x)
    assert torch.equal(scores.argmax(1), found.model(x).argmax(1))
    right = (scores.argmax(1) == y).double().mean()
    assert float(right) == pytest.approx(found.scores.val)


def test_a_trained_network_gives_its_weights_and_stays_as_it_is(taught_images):
    teacher = copy.deepcopy(taught_images.teacher)
    before = copy.deepcopy(teacher.state_dict())
    config = bitgnn.ImageConfig(scale=False, last="keep")
    found = bitgnn.distill(teacher, pictures(256), config, validation=pictures(64, 1), epochs=1)
    assert found.teacher_history == []
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())
    assert isinstance(found.model[-1], nn.Linear)
    assert [row["stage"] for row in found.history] == [0]
    # Two steps of Adam move a weight by two learning rates at most, so that it is the teacher's.
    assert (found.model[3].weight - teacher[3].weight).abs().max() < 1e-2
    assert found.scores.val > GUESSED


def test_samples_are_held_out_of_a_dataset_or_a_plain_loader():
    with pytest.warns(UserWarning, match="validation is missing; 51 of 257 training labels"):
        found = bitgnn.distill(network(), pictures(257), epochs=1)
    assert len(found.history) == 1
    with pytest.warns(UserWarning, match="32 of 64"):
        bitgnn.distill(network(), DataLoader(pictures(64), 16), epochs=1, validation=0.5)


def test_a_wider_network():
    data = pictures(64)
    found = bitgnn.distill(network(), data, validation=data, epochs=2, widen=2)
    assert isinstance(found.model[3], BinaryConv2d)
    assert found.model[3].out_channels == 16
    assert "frozen, same width" in found.cost_table()


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("step", [None, 2**-6])
def test_float_weights_are_multiplied_by_signs(scale, step):
    conv = BinaryConv2d(2, 3, 3, padding=1, padding_mode="reflect", scale=scale, input_step=step)
    linear = BinaryLinear(5, 3, scale=scale, input_step=step)
    for layer, shape, product in (
        (conv, (2, 2, 6, 6), nn.functional.conv2d),
        (linear, (4, 5), nn.functional.linear),
    ):
        x = torch.randn(shape)
        signs = x if step else torch.where(x >= 0, 1.0, -1.0)
        weight = layer.weight.detach()
        if not scale:
            weight = weight / weight.flatten(1).abs().mean(1).view(-1, *[1] * (weight.dim() - 1))
        padded = nn.functional.pad(signs, (1,) * 4, mode="reflect") if layer is conv else signs
        binary = layer(x)
        use_float_weights(layer, True)
        assert torch.allclose(layer(x), product(padded, weight, layer.bias), atol=1e-5)
        use_float_weights(layer, False)
        assert torch.equal(layer(x), binary)


@pytest.mark.parametrize("stage", ["student-float-weights", "student"])
def test_a_stop_in_either_stage_loses_nothing(stage, tmp_path, monkeypatch):
    def taught(log=None):
        batches = DataLoader(pictures(64), 16, shuffle=True)
        return bitgnn.distill(
            network(), batches, validation=pictures(64, 1), epochs=4, seed=3, log=log
        )

    expected = taught()
    real = fitting.step_epoch

    def step(session, *rest):
        if session.identity["part"] == stage and session.epoch == 1:
            raise KeyboardInterrupt
        real(session, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(fitting, "step_epoch", step)
        if stage == "student":
            with pytest.warns(UserWarning, match="Ctrl-C after 1 of 2 epochs"):
                assert taught(tmp_path).interrupted
        else:
            with pytest.raises(KeyboardInterrupt):
                taught(tmp_path)
    state = taught(tmp_path).model.state_dict()
    assert all(torch.equal(v, state[n]) for n, v in expected.model.state_dict().items())


@pytest.mark.parametrize("make", [bert, own_encoder])
def test_an_encoder_of_texts_is_trained_and_taught(make):
    batches = DataLoader(sentences(256), 16, shuffle=True)
    found = bitgnn.distill(make(), batches, validation=sentences(64, 1), epochs=8)
    assert found.teacher_scores.val > 0.9
    assert found.scores.val > 0.8
    assert [row["stage"] for row in found.history] == [0, 0, 1, 2, 3, 3, 3, 3]
    inputs = next(iter(DataLoader(sentences(64, 1), 64)))
    del inputs["labels"]
    frozen = bitgnn.freeze(found.model)
    if make is bert:
        ours, theirs = frozen(**inputs).logits, found.model(**inputs).logits
    else:
        args = inputs["input_ids"], inputs["attention_mask"].bool()
        ours, theirs = frozen(*args), found.model(*args)
    assert torch.equal(ours, theirs)
    assert "frozen" in found.cost_table()


def test_signs_of_texts_take_one_stage_and_a_share_some_layers():
    data = DataLoader(sentences(32), 16)
    config = bitgnn.BWTAConfig(activation="sign", attention=False)
    found = bitgnn.distill(bert(), data, config, validation=data, epochs=2)
    assert [row["stage"] for row in found.history] == [0, 0]
    some = bitgnn.BWTAConfig(layers=["layers.0.inner"], level=4)
    found = bitgnn.distill(own_encoder(), data, some, validation=data, epochs=2)
    assert [row["stage"] for row in found.history] == [0, 1]
    layer = found.model.layers[0]
    assert layer.inner.level == 1
    assert type(layer.outer) is nn.Linear


class Stream(IterableDataset):
    """Batches one behind the other, of no known number."""

    def __init__(self, *batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


PICTURES = pictures(16)
IMAGES, LABELS = pictures(8).tensors


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (DataLoader(TensorDataset(IMAGES), 4), r"pairs \(images, labels\), got 1 values"),
        (Stream(), "must hold a batch at least, got an empty Stream"),
        (Stream((IMAGES, LABELS[:3])), r"a row for each of 8 inputs, got \[3\]"),
        (Stream((LABELS, LABELS)), r"images must be a tensor \[B, C, H, W\], got \[8\]"),
        (Stream((IMAGES[:, :, 0], LABELS)), r"model does not take data, torch.float32 \[8, 1, 8\]"),
        (Stream((IMAGES / 0, LABELS)), "finite, found NaN or infinity in the first batch"),
        (Stream((IMAGES, LABELS + 1)), "classes 0 to 3"),
        (Stream((IMAGES, LABELS), (IMAGES, 2 * LABELS)), "data: labels .* got 0 to 6"),
        (Stream(3.0), "data must be a Data object.* got Stream"),
        (Stream({"input_ids": LABELS}), r"attention_mask and labels, got the keys"),
        (Stream({"input_ids": IMAGES, "labels": LABELS}), "data must hold input"),
        (IMAGES, "or a loader or dataset of batches, got Tensor"),
        ((IMAGES, LABELS), "a dataset of pairs .* such as TensorDataset, got a tuple of tensors"),
        ({"input_ids": LABELS}, "or a loader or dataset of batches, got dict"),
    ],
)
def test_batches_that_nothing_can_be_learnt_from(data, message):
    with pytest.raises(DistillError, match=message):
        bitgnn.distill(network(), data, validation=pictures(8, 1), epochs=1)


UNEVEN = Stream({**next(iter(DataLoader(sentences(8), 8))), "extra": torch.zeros(3)})


@pytest.mark.parametrize(
    ("model", "data", "options", "message"),
    [
        (network(), PICTURES, {"validation": Stream()}, "validation must hold a batch at least"),
        (network(), PICTURES, {"validation": iter([])}, "validation must give its batches anew"),
        (network(), PICTURES, {"loader": DataLoader(PICTURES)}, "loader must be None for images"),
        (network(), PICTURES, {"precision": "FBB+BBF"}, "precision must be one of"),
        (network(), Stream((IMAGES, LABELS)), {"validation": None}, "of a Stream with batches of"),
        (bitgnn.binarize(network()), PICTURES, {}, "is binary already"),
        (network()[:-2], PICTURES, {}, r"scores \[16, C\], a row for each of 16 inputs"),
        (own_encoder(), sentences(8), {"precision": "full"}, 'must be "bin" or a BWTAConfig for'),
        (own_encoder(), UNEVEN, {}, "must have equal rows"),
    ],
)
def test_bad_arguments_beside_good_batches(model, data, options, message):
    validation = PICTURES if isinstance(model, nn.Sequential) else sentences(8)
    with pytest.raises(DistillError, match=message):
        bitgnn.distill(model, data, epochs=1, **{"validation": validation, **options})
