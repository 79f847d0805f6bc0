"""JSON and YAML of unknown origin: bounded in every way, and one error that names the file."""

import pytest

from bitgnn import FileError
from bitgnn._plain import YAML_BYTES, parse_json, parse_yaml, read_json, read_yaml

LAUGHS = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 8)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


JSON = [
    (b'{"a": NaN}', "NaN is not a number"),
    (b"[Infinity, -Infinity]", "Infinity is not a number"),
    (b"1e400", "finite"),
    (b'{"a": 1, "a": 2}', "'a' stands twice"),
    (b"[" * 65 + b"]" * 65, "nested more than"),
    *((text, "") for text in (b"[" * 200_000, b'{"a":' * 100_000, b"9" * 5000, b"\xff\xfe", b"")),
]
YAML = [
    (b"a: .nan", "finite"),
    (b"a: .inf", "finite"),
    (b"a: 1\na: 2", "'a' stands twice"),
    (b"[" * 100 + b"]" * 100, "nested more than"),
    (b"[" * 100_000, "nested more than"),
    (LAUGHS.encode(), "more than 100000 values"),
    (b"&a [*a]", "nested more than"),
    (b"!!python/object:os.system x", "constructor"),
    *(
        (text, "")
        for text in (b"a: " + b"9" * 5000, b"\xff", b"a: [", b"? [a, b]\n: 1\n? {c: d}\n: 2")
    ),
]


@pytest.mark.parametrize(
    ("parse", "text", "reason"),
    [(parse_json, *case) for case in JSON] + [(parse_yaml, *case) for case in YAML],
)
def test_what_is_refused(parse, text, reason):
    kind = "JSON" if parse is parse_json else "YAML"
    with pytest.raises(FileError, match=rf"^here: is not valid {kind} \(.*{reason}") as caught:
        parse(text, "here")
    assert len(str(caught.value)) < 300


def test_what_is_fine_is_read(tmp_path):
    (tmp_path / "a.json").write_text('{"a": [1, 2.5, null, true], "b": {"c": "\u00e9"}}')
    assert read_json(tmp_path / "a.json") == {"a": [1, 2.5, None, True], "b": {"c": "é"}}
    (tmp_path / "a.yaml").write_text("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}\ne: *x\n")
    assert read_yaml(tmp_path / "a.yaml") == {
        "a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}, "e": {"b": 1, "c": 2}
    }  # fmt: skip


def test_large_yaml_is_refused_before_it_is_parsed(tmp_path):
    (tmp_path / "large.yaml").write_bytes(b"#" * (YAML_BYTES + 1))
    with pytest.raises(FileError, match=rf"large.yaml: has {YAML_BYTES + 1} bytes, at most"):
        read_yaml(tmp_path / "large.yaml")
