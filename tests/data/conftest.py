"""Places of real data, a small web server that can misbehave, and raw files of every format."""

import gzip
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """No test reads or fills the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def real_data():
    """A folder of real data sets."""
    named = os.environ.get("BITGNN_DATA")
    places = [Path(named)] if named else [REPOSITORY.parent / "shared" / "datasets"]
    for place in places:
        if place.is_dir():
            return place
    pytest.skip("real data sets are neither in BITGNN_DATA nor in ../shared/datasets")


class Server:
    """``files`` by path on a local address; the next ``cut`` answers break off half way.

    ``requests`` holds the paths asked for.
    """

    def __init__(self):
        self.files, self.requests, self.cut = {}, [], 0
        owner = self

        class Handler(BaseHTTPRequestHandler):
            do_HEAD = do_GET = lambda request: owner.answer(request)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, request):
        body = self.files.get(request.path)
        if body is None:
            request.send_error(404)
            return
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command == "GET":
            self.requests.append(request.path)
            end = len(body) // 2 if self.cut else len(body)
            self.cut = max(0, self.cut - 1)
            request.wfile.write(body[:end])


@pytest.fixture
def server():
    made = Server()
    yield made
    made.server.shutdown()
    made.server.server_close()


NODES, FEATURES, CLASSES = 12, 5, 3
CSR = ("data", "indices", "indptr", "shape")
EDGES = np.array([[0, 1, 2, 3, 4, 4, 7], [1, 2, 3, 4, 0, 0, 7]])


def labels():
    return np.arange(NODES) % CLASSES


def features():
    values = np.random.default_rng(0).standard_normal((NODES, FEATURES)).astype(np.float32)
    return np.abs(values)


def adjacency():
    return sp.coo_matrix((np.ones(EDGES.shape[1], np.float32), EDGES), (NODES, NODES))


def save_npz_graph(path):
    """The format of Amazon, Coauthor and CitationFull."""
    path.parent.mkdir(parents=True)
    x, a = sp.csr_matrix(features()), adjacency().tocsr()
    np.savez(
        path,
        labels=labels(),
        **{f"attr_{part}": getattr(x, part) for part in CSR},
        **{f"adj_{part}": getattr(a, part) for part in CSR},
    )


def save_heterophilous(path, num_splits=10):
    path.parent.mkdir(parents=True)
    parts = np.random.default_rng(1).integers(0, 3, (num_splits, NODES))
    masks = {f"{name}_masks": parts == i for i, name in enumerate(("train", "val", "test"))}
    np.savez(path, node_features=features(), node_labels=labels(), edges=EDGES.T, **masks)


def save_linkx(path):
    path.parent.mkdir(parents=True)
    info = np.stack([np.arange(NODES) % 2, labels(), np.arange(NODES) % 4], axis=1)
    scipy.io.savemat(path, {"A": adjacency().tocsc(), "local_info": info})


def save_reddit(folder):
    folder.mkdir(parents=True)
    roles = np.array([1] * 6 + [2] * 3 + [3] * 3)
    np.savez(folder / "reddit_data.npz", feature=features(), label=labels(), node_types=roles)
    sp.save_npz(folder / "reddit_graph.npz", adjacency())


def save_flickr(folder, with_features=True):
    folder.mkdir(parents=True)
    sp.save_npz(folder / "adj_full.npz", adjacency().tocsr())
    classes = {str(node): int(label) for node, label in enumerate(labels())}
    (folder / "class_map.json").write_text(json.dumps(classes))
    roles = {"tr": [0, 1, 2, 3, 4, 5], "va": [6, 7, 8], "te": [9, 10, 11]}
    (folder / "role.json").write_text(json.dumps(roles))
    if with_features:
        np.save(folder / "feats.npy", features().astype(np.float64))


def save_ogb(folder, split, further=()):
    """The compressed tables that ogb unpacks from its archives."""
    tables = {
        "raw/edge": EDGES.T,
        "raw/node-feat": features(),
        "raw/node-label": labels()[:, None],
        "raw/num-node-list": np.array([[NODES]]),
        "raw/num-edge-list": np.array([[EDGES.shape[1]]]),
        f"split/{split}/train": np.arange(6)[:, None],
        f"split/{split}/valid": np.arange(6, 9)[:, None],
        f"split/{split}/test": np.arange(9, 12)[:, None],
    }
    tables |= {f"raw/{name}": np.full((NODES, 1), 2000) for name in further}
    for name, table in tables.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress("\n".join(",".join(map(str, r)) for r in table).encode()))
    (folder / "RELEASE_v1.txt").write_text("")


@pytest.fixture
def raw():
    """The tiny graph, and a function for each format it can be saved in."""
    return SimpleNamespace(
        nodes=NODES,
        classes=CLASSES,
        edges=set(map(tuple, EDGES.T.tolist())),
        x=features(),
        y=labels(),
        save_npz_graph=save_npz_graph,
        save_heterophilous=save_heterophilous,
        save_linkx=save_linkx,
        save_reddit=save_reddit,
        save_flickr=save_flickr,
        save_ogb=save_ogb,
    )
