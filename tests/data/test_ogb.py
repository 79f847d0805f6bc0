"""ogbn-arxiv and ogbn-products from tiny tables in ogb's own format."""

import importlib.util
import io
import sys
import zipfile

import pytest
import torch

from bitgnn.data import DataError, load
from bitgnn.data.splits import MASKS

needs_ogb = pytest.mark.skipif(
    importlib.util.find_spec("ogb") is None, reason="the extra ogb is not installed"
)
SPLITS = {"ogbn-arxiv": ("time", ("node_year",)), "ogbn-products": ("sales_ranking", ())}


def test_without_ogb_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", None)
    with pytest.raises(DataError, match=r"ogbn-arxiv: needs the package ogb: pip install 'bitgnn"):
        load("ogbn-arxiv", tmp_path)


@needs_ogb
@pytest.mark.parametrize("name", list(SPLITS))
@pytest.mark.parametrize("collection", ["", "ogb/"])
def test_from_files(tmp_path, raw, name, collection):
    folder = tmp_path / f"{collection}{name.replace('-', '_')}"
    raw.save_ogb(folder, *SPLITS[name])
    if not collection:
        folder.chmod(0o555)
    for _ in range(2):  # the second time from what ogb keeps
        data = load(name, tmp_path)
        assert data.name == name
        torch.testing.assert_close(data.x, torch.from_numpy(raw.x))
        assert torch.equal(data.y, torch.from_numpy(raw.y))
        assert [int(data[key].sum()) for key in MASKS] == [6, 3, 3]
        pairs = set(map(tuple, data.edge_index.t().tolist()))
        assert pairs == raw.edges | {(b, a) for a, b in raw.edges}
    found = sorted(path.name for path in folder.iterdir())
    folder.chmod(0o755)
    assert found == ["RELEASE_v1.txt", *["processed"] * bool(collection), "raw", "split"]


@pytest.fixture
def archive(tmp_path, raw, server, monkeypatch):
    """The archive of arxiv on the local server; returns the folder to load from."""
    import ogb.nodeproppred.dataset_pyg as module

    raw.save_ogb(tmp_path / "source" / "arxiv", *SPLITS["ogbn-arxiv"])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for path in (tmp_path / "source").rglob("*.*"):
            file.write(path, path.relative_to(tmp_path / "source"))
    server.files["/arxiv.zip"] = packed.getvalue()
    read_csv = module.pd.read_csv

    def with_local_url(path, *args, **kwargs):
        table = read_csv(path, *args, **kwargs)
        if str(path).endswith("master.csv"):
            table.loc["url"] = f"{server.url}/arxiv.zip"
        return table

    monkeypatch.setattr(module.pd, "read_csv", with_local_url)
    return tmp_path / "root"


@needs_ogb
def test_download(archive, server, raw):
    server.cut = 1
    with pytest.raises(DataError, match=r"not downloaded .*Put RELEASE_v1"):
        load("ogbn-arxiv", archive)
    assert not (archive / "ogb").exists()
    for _ in range(2):
        assert load("ogbn-arxiv", archive).x.shape == raw.x.shape
    assert len(server.requests) == 2
    assert [path.name for path in (archive / "ogb").iterdir()] == ["ogbn_arxiv"]


@needs_ogb
def test_an_incomplete_folder_is_never_deleted(archive, server):
    """Left to itself, ogb would replace the folder."""
    kept = archive / "ogb" / "ogbn_arxiv" / "raw" / "edge.csv.gz"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"mine")
    with pytest.raises(DataError, match=r"ogbn_arxiv is incomplete, RELEASE_v1.txt, raw/node-feat"):
        load("ogbn-arxiv", archive)
    assert kept.read_bytes() == b"mine"
    assert server.requests == []


class Payload:
    def __reduce__(self):
        return (print, ("executed",))


@needs_ogb
def test_code_in_the_kept_graph_is_not_run(tmp_path, raw, capsys):
    folder = tmp_path / "ogbn_arxiv"
    raw.save_ogb(folder, *SPLITS["ogbn-arxiv"])
    (folder / "processed").mkdir()
    for name in ("pre_transform.pt", "pre_filter.pt"):
        torch.save("None", folder / "processed" / name)
    torch.save((Payload(), None), folder / "processed" / "geometric_data_processed.pt")
    with pytest.raises(DataError, match=r"(?s)cannot be read.*[Ww]eights.only"):
        load("ogbn-arxiv", tmp_path)
    assert "executed" not in capsys.readouterr().out
