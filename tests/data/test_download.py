"""Downloads: whole or not at all, gone on with, never a page or a part taken for the file."""

import fcntl
import urllib.error

import numpy as np
import pytest

from bitgnn.data.files import download_file

BODY = np.random.default_rng(0).integers(0, 256, 100_000, dtype=np.uint8).tobytes()


@pytest.fixture
def url(server):
    server.files["/graph.npz"] = BODY
    return f"{server.url}/graph.npz?raw=1"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_whole_and_once(server, url, tmp_path, capsys):
    folder = tmp_path / "new" / "raw"
    for _ in range(2):
        assert download_file(url, str(folder)) == str(folder / "graph.npz")
    assert names(folder) == ["graph.npz"]
    assert (folder / "graph.npz").read_bytes() == BODY
    assert "graph.npz" in capsys.readouterr().err
    assert len(server.requests) == 1


def test_an_interrupted_one_goes_on_where_it_stopped(server, url, tmp_path):
    server.cut = 2
    for _ in range(2):
        with pytest.raises(OSError, match=r"announced 100000 bytes and ended after .*try again"):
            download_file(url, str(tmp_path), log=False, filename="mine")
        assert names(tmp_path) == ["mine.part", "mine.part.etag"]
    download_file(url, str(tmp_path), log=False, filename="mine")
    assert [wanted for _, wanted in server.requests] == [None, "bytes=50000-", "bytes=75000-"]
    assert (tmp_path / "mine").read_bytes() == BODY
    assert names(tmp_path) == ["mine"]


@pytest.mark.parametrize(
    ("first", "then", "asked"),
    [('"one"', '"two"', "bytes=50000-"), (None, None, None), ('W/"weak"', 'W/"weak"', None)],
)
def test_other_content_or_no_reliable_tag_starts_again(server, url, tmp_path, first, then, asked):
    server.etag, server.cut = first, 1
    with pytest.raises(OSError, match="try again"):
        download_file(url, str(tmp_path))
    server.etag, server.files["/graph.npz"] = then, BODY[::-1]
    download_file(url, str(tmp_path))
    assert [wanted for _, wanted in server.requests] == [None, asked]
    assert (tmp_path / "graph.npz").read_bytes() == BODY[::-1]


def test_killed_before_the_last_step(url, server, tmp_path):
    (tmp_path / "graph.npz.part").write_bytes(BODY)
    (tmp_path / "graph.npz.part.etag").write_text('"one"')
    download_file(url, str(tmp_path))
    assert server.requests == [("/graph.npz?raw=1", "bytes=100000-")]
    assert names(tmp_path) == ["graph.npz"]


def test_pages_and_refusals_leave_nothing(server, url, tmp_path):
    server.content_type = "text/html; charset=utf-8"
    with pytest.raises(OSError, match="gives a web page instead of a file"):
        download_file(url, str(tmp_path))
    with pytest.raises(urllib.error.HTTPError, match="404"):
        download_file(f"{server.url}/other", str(tmp_path))
    assert names(tmp_path) == []


def test_one_process_at_a_time(url, tmp_path):
    with (tmp_path / "graph.npz.part").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="another process is downloading"):
            download_file(url, str(tmp_path))
    assert download_file(url, str(tmp_path))
