"""Real data sets by name, read by PyG's classes; only known pickles are opened."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch_geometric.datasets
from torch_geometric.data import Data

from bitgnn.data.files import PROCESSED, DataError, RawFiles, data_root, without_leftovers
from bitgnn.data.splits import MASKS
from bitgnn.data.synthetic_graphs import class_features

TRUST_VARIABLE = "BITGNN_TRUST_PICKLES"
PICKLES = {
    "ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
    "ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
    "ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
    "ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
    "ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
    "ind.citeseer.x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
    "ind.citeseer.y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
    "ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "ind.cora.x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
    "ind.cora.y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
    "ind.pubmed.allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
    "ind.pubmed.ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
    "ind.pubmed.graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
    "ind.pubmed.tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
    "ind.pubmed.ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
    "ind.pubmed.x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
    "ind.pubmed.y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
    "fb100-Penn94-splits.npy": "88a1060358482d8e25b978ab59c4ff71771388cd5ffac3dd775a3cd9dc85b032",
}
"""SHA-256 of each raw file that is a pickle, as published: Planetoid's by Z. Yang and others
(``test.index`` is text), the splits of Penn94 by D. Lim and others."""
PLANETOID_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
CITATION_FULL = {
    "Cora_ML": "cora_ml",
    "DBLP": "dblp",
    "Cora_Full": "cora",
    "CiteSeer_Full": "citeseer",
    "PubMed_Full": "pubmed",
}
"""Folders by name."""
INCOMPLETE = ".incomplete"
FLICKR_FEATURES = 500
ROLES = ("tr", "va", "te")


@dataclass(frozen=True)
class Source(RawFiles):
    """A data set of ``torch_geometric.datasets``; classes of a collection take a ``name``."""

    class_name: str

    def read(self, base: Path) -> Data:
        """The graph as PyG gives it; ``base`` contains the data set's folder."""
        kind = atomic_dataset(getattr(torch_geometric.datasets, self.class_name))
        if self.collection:
            return kind(root=str(base), name=self.folder)[0]
        return kind(root=str(base / self.folder))[0]


def normalized_name(name: str) -> str:
    """``name`` for comparisons, without case, hyphens, underscores and spaces."""
    return name.lower().translate(str.maketrans("", "", "-_ "))


def _sources() -> Iterator[Source]:
    def source(class_name: str, collection: str, name: str, folder: str, *raw: str) -> Source:
        return Source(name, collection, folder, tuple(f"raw/{file}" for file in raw), class_name)

    for name in ("Cora", "CiteSeer", "PubMed"):
        raw = [f"ind.{name.lower()}.{part}" for part in PLANETOID_PARTS]
        yield source("Planetoid", "planetoid", name, name, *raw)
    for name in ("Computers", "Photo"):
        yield source("Amazon", "amazon", name, name, f"amazon_electronics_{name.lower()}.npz")
    for name in ("CS", "Physics"):
        yield source("Coauthor", "coauthor", name, name, f"ms_academic_{name.lower()[:3]}.npz")
    for name, folder in CITATION_FULL.items():
        yield source("CitationFull", "citationfull", name, folder, f"{folder}.npz")
    for name in ("Roman_Empire", "Amazon_Ratings", "Minesweeper", "Tolokers", "Questions"):
        kind, folder = "HeterophilousGraphDataset", name.lower()
        yield source(kind, "heterophilous", name, folder, f"{folder}.npz")
    for name in ("Penn94", "Reed98", "Amherst41", "Cornell5", "JohnsHopkins55", "Genius"):
        splits = ["fb100-Penn94-splits.npy"] if name == "Penn94" else []
        yield source("LINKXDataset", "linkx", name, name.lower(), "data.mat", *splits)
    yield source("Reddit", "", "Reddit", "reddit", "reddit_data.npz", "reddit_graph.npz")
    flickr = ("adj_full.npz", "feats.npy", "class_map.json", "role.json")
    yield source("Flickr", "", "Flickr", "flickr", *flickr)


SOURCES: dict[str, Source] = {normalized_name(source.title): source for source in _sources()}
"""Data sets by :func:`normalized_name`."""
FLICKR_STRUCTURE = RawFiles(
    "Flickr (synthetic features)",
    "",
    "flickr",
    ("raw/adj_full.npz", "raw/class_map.json", "raw/role.json"),
)


def read_source(source: Source, root: str | os.PathLike[str] | None) -> Data:
    """The graph of a data set as PyG gives it, downloaded if it is not at hand."""
    folder = data_root(root)
    found = source.find(folder)
    if found is not None:
        base = source.writable(found)
        place = base / source.folder
        try:
            return source.read(base)
        except Exception as error:
            made = place / PROCESSED
            hint = f"; {made} may be left over from an interruption: delete it"
            raise DataError(
                f"{source.title}: files in {place} cannot be read: {error}"
                f"{hint if made.exists() else ''}"
            ) from error
    base = source.download_base(folder)
    raw = base / source.folder / "raw"
    is_new = not raw.exists()
    with without_leftovers(base / source.folder):
        try:
            return source.read(base)
        except Exception as error:
            if is_new:  # a connection that broke off may have left part of a file
                shutil.rmtree(raw, ignore_errors=True)
            reason = str(error) or type(error).__name__
            raise DataError(
                f"{source.title}: raw files not found under {folder} and not downloaded "
                f"({reason}). {source.advice(folder)}"
            ) from error


def read_flickr_structure(root: str | os.PathLike[str] | None, seed: int = 0) -> Data:
    """Flickr without ``feats.npy``: features are made up from the classes.

    See :func:`~bitgnn.data.synthetic_graphs.class_features`. The raw files are only read.
    """
    title, folder = FLICKR_STRUCTURE.title, data_root(root)
    base = FLICKR_STRUCTURE.find(folder)
    if base is None:
        raise DataError(
            f"{title}: raw files not found under {folder}. {FLICKR_STRUCTURE.advice(folder)}"
        )
    raw = base / FLICKR_STRUCTURE.folder / "raw"
    try:
        with np.load(raw / "adj_full.npz") as file:
            rowptr, columns = file["indptr"], file["indices"]
        classes = json.loads((raw / "class_map.json").read_text())
        roles = json.loads((raw / "role.json").read_text())
        rows = np.repeat(np.arange(len(rowptr) - 1, dtype=np.int64), np.diff(rowptr))
        edge_index = torch.from_numpy(np.stack([rows, columns.astype(np.int64)]))
        y = torch.full((len(rowptr) - 1,), -1)
        y[torch.tensor([int(node) for node in classes])] = torch.tensor(list(classes.values()))
        empty = torch.zeros(len(y), dtype=torch.bool)
        masks = {
            key: empty.index_fill(0, torch.tensor(roles[role], dtype=torch.int64), True)
            for key, role in zip(MASKS, ROLES, strict=True)
        }
    except Exception as error:
        raise DataError(f"{title}: files in {raw} cannot be read: {error}") from error
    x = class_features(y, FLICKR_FEATURES, np.random.default_rng(seed))
    return Data(x=x, edge_index=edge_index, y=y, **masks)


def check_pickles(paths: Iterable[str | os.PathLike[str]]) -> None:
    """Refuse raw files that are pickles of unknown contents, before PyG opens them.

    The environment variable ``BITGNN_TRUST_PICKLES=1`` lets them through.
    """
    if os.environ.get(TRUST_VARIABLE) == "1":
        return
    for path in map(Path, paths):
        known = PICKLES.get(path.name)
        if known is not None and hashlib.sha256(path.read_bytes()).hexdigest() != known:
            raise DataError(
                f"{path} is a pickle, which can run any code, and not the published file; set "
                f"{TRUST_VARIABLE}=1 if you trust it"
            )


class _AtomicFiles:
    """Mixin for PyG data set classes: files are made in folders that are renamed when done."""

    _working_on = ""

    @property
    def raw_dir(self) -> str:
        """Folder of the raw files, or the one in which they are being gathered."""
        folder: str = super().raw_dir  # type: ignore[misc]
        return folder + self._suffix("raw")

    @property
    def processed_dir(self) -> str:
        """Folder of PyG's processed files, or the one in which they are being made."""
        folder: str = super().processed_dir  # type: ignore[misc]
        return folder + self._suffix(PROCESSED)

    def download(self) -> None:
        """Download into a folder of its own: PyG takes part of a file for the whole."""
        with self._gather("raw"):
            super().download()  # type: ignore[misc]

    def _process(self) -> None:
        """Refuse PyG's notes on transforms where they are pickles of more than text."""
        for name in ("pre_transform.pt", "pre_filter.pt"):
            note = Path(self.processed_dir, name)
            if note.exists():
                torch.load(note, weights_only=True)
        super()._process()  # type: ignore[misc]

    def process(self) -> None:
        """Check raw files that are pickles, then process them as PyG does."""
        check_pickles(self.raw_paths)  # type: ignore[attr-defined]
        with self._gather(PROCESSED):
            super().process()  # type: ignore[misc]

    def _suffix(self, kind: str) -> str:
        # Processes that make the same files at a time keep out of each other's way.
        return f"{INCOMPLETE}.{os.getpid()}" if self._working_on == kind else ""

    @contextlib.contextmanager
    def _gather(self, kind: str) -> Iterator[None]:
        final = Path(getattr(self, f"{kind}_dir"))
        self._working_on = kind
        staging = Path(getattr(self, f"{kind}_dir"))
        try:
            staging.mkdir(parents=True, exist_ok=True)
            yield
            final.mkdir(parents=True, exist_ok=True)
            for path in staging.iterdir():
                path.replace(final / path.name)
        finally:
            self._working_on = ""
            shutil.rmtree(staging, ignore_errors=True)


def atomic_dataset(dataset_class: type) -> type:
    """A subclass of a PyG data set class, of its name, whose files appear whole or not at all.

    They are downloaded and made in ``raw.incomplete.PID`` and ``processed.incomplete.PID``, so that
    an interruption leaves nothing that looks finished.
    """
    return type(dataset_class.__name__, (_AtomicFiles, dataset_class), {})
