"""Sentences: GLUE's files read and refused, tokens of an own tokenizer, their cache."""

import pytest
import torch

from bitgnn.data import DataError, TextData, TextSet, load_text, tokenize
from bitgnn.data.tokens import encode_sentences, train_tokenizer

SENTENCES = ("a bad film", "a good film", "the best film of all", "so bad", "so good")


def write_sst2(root, train=None, dev="0\tso bad\n1\tso good\n"):
    folder = root / "glue" / "SST-2"
    folder.mkdir(parents=True)
    lines = "".join(f"{i % 2}\tsentence number {i}\n" for i in range(70))
    (folder / "train.tsv").write_text("label\tsentence\n" + (lines if train is None else train))
    (folder / "dev.tsv").write_text("label\tcontent\n" + dev)
    return folder


def write_cola(root, val=True):
    folder = root / "CoLA"
    folder.mkdir(parents=True)
    (folder / "train.tsv").write_text('gj04\t1\t\t"Bill" left.\ngj04\t0\t*\tLeft Bill the.\n')
    (folder / "dev.tsv").write_text("gj04\t1\t\tBill sneezed.")
    if val:
        (folder / "val.tsv").write_text("gj04\t0\t*\tSneezed Bill.\r\n")


def made(labels=(0, 1, 1, 0, 1), metric="accuracy"):
    part = TextSet(SENTENCES, labels)
    return TextData("made", part, part, part, ("bad", "good"), metric)


def test_sst2_holds_out_every_34th_sentence(tmp_path):
    write_sst2(tmp_path)
    data = load_text("sst2", tmp_path)
    assert data.validation.sentences == tuple(f"sentence number {i}" for i in (0, 34, 68))
    assert data.validation.labels == (0, 0, 0)
    assert len(data.train) == 67
    assert set(data.train.sentences).isdisjoint(data.validation.sentences)
    assert data.test == TextSet(("so bad", "so good"), (0, 1))
    assert data.metric == "accuracy"


@pytest.mark.parametrize("val", [True, False])
def test_cola_reads_quotes_and_last_lines_without_an_end(tmp_path, val):
    write_cola(tmp_path, val)
    data = load_text("cola", tmp_path)
    assert data.test == TextSet(("Bill sneezed.",), (1,))
    assert data.metric == "matthews"
    if val:
        assert data.train == TextSet(('"Bill" left.', "Left Bill the."), (1, 0))
        assert data.validation == TextSet(("Sneezed Bill.",), (0,))
    else:
        assert data.validation.sentences == ('"Bill" left.',)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("1\tgood\n2\tbad\n", r"line 3: label must be 0 or 1, got '2'"),
        ("1\tgood\n1\n", r"line 3 must have 2 columns, got 1"),
        ("1\tgood\n1\t \n", r"line 3 has no sentence"),
        ("1\tgood\n\n1\tbad\n", r"line 3 must have 2 columns"),
        ("", "no sentences"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path, train, message):
    write_sst2(tmp_path, train)
    with pytest.raises(DataError, match=rf"train\.tsv: {message}"):
        load_text("sst2", tmp_path)


def test_headings_and_bytes_are_checked(tmp_path):
    folder = write_sst2(tmp_path)
    (folder / "dev.tsv").write_text("0\tso bad\n")
    with pytest.raises(DataError, match="line 1 must be"):
        load_text("sst2", tmp_path)
    (folder / "dev.tsv").write_bytes(b"label\tsentence\n1\t\xff\xfe\n")
    with pytest.raises(DataError, match="cannot be read"):
        load_text("sst2", tmp_path)


def test_missing_files_and_unknown_names(tmp_path):
    with pytest.raises(DataError, match=r"Put train\.tsv and dev\.tsv into .*glue/CoLA"):
        load_text("cola", tmp_path)
    with pytest.raises(ValueError, match=r"name must be one of \['sst2', 'cola'\], got 'mnli'"):
        load_text("mnli", tmp_path)


def test_real_files(real_data):
    if not (real_data / "glue").is_dir():
        pytest.skip("GLUE is not at hand")
    sst2, cola = load_text("sst2", real_data), load_text("cola", real_data)
    assert len(sst2.train) + len(sst2.validation) == 67_349
    assert len(sst2.test) == 872
    assert len(cola.train) + len(cola.validation) == 8_551
    assert len(cola.test) == 1_043
    assert sum(cola.test.labels) == 721


def test_tokens_have_ends_and_padding():
    pytest.importorskip("tokenizers")
    tokenizer = train_tokenizer(SENTENCES, 60)
    part = encode_sentences(tokenizer, TextSet(("a GOOD film", "§"), (1, 0)), 12)
    first, last = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    assert part.ids.dtype == torch.int32
    assert part.lengths.tolist() == [5, 3]
    assert part.ids[0, [0, 4]].tolist() == [first, last]
    assert part.ids[0, 5:].eq(0).all()
    # Case does not count; what no piece spells is one unknown token.
    assert tokenizer.decode(part.ids[0].tolist()) == "a good film"
    assert part.ids[1, 1] == tokenizer.token_to_id("[UNK]")
    cut = encode_sentences(tokenizer, TextSet(("a good film",), (1,)), 3)
    assert cut.ids.tolist() == [[first, int(part.ids[0, 1]), last]]
    with pytest.raises(ValueError, match="length must be at least 3, got 2"):
        encode_sentences(tokenizer, TextSet((), ()), 2)
    with pytest.raises(ValueError, match="vocabulary must be above 5, got 5"):
        train_tokenizer(SENTENCES, 5)


def test_tokens_come_from_the_cache_only_for_the_same_sentences(tmp_path, monkeypatch):
    pytest.importorskip("tokenizers")
    cache = tmp_path / "inner" / "tokens.safetensors"
    first = tokenize(made(), 60, 12, cache)
    assert first.vocabulary <= 60
    monkeypatch.setattr("bitgnn.data.tokens.train_tokenizer", None)
    again = tokenize(made(), 60, 12, cache)
    assert torch.equal(again.train.ids, first.train.ids)
    assert torch.equal(again.test.lengths, first.test.lengths)
    assert (again.vocabulary, again.classes, again.metric) == (
        first.vocabulary, ("bad", "good"), "accuracy",
    )  # fmt: skip
    for other in ((made((1, 1, 1, 1, 1)), 60, 12), (made(), 61, 12), (made(), 60, 13)):
        with pytest.raises(TypeError, match="not callable"):
            tokenize(*other, cache)
    cache.write_bytes(b"damaged")
    with pytest.raises(TypeError, match="not callable"):
        tokenize(made(), 60, 12, cache)


def test_without_tokenizers_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(DataError, match=r"pip install 'bitgnn\[text\]'"):
        train_tokenizer(SENTENCES, 60)
