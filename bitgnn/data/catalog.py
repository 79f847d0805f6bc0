"""Names of the real data sets, the files each consists of, and the PyG class that reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bitgnn.data.atomic_dataset import atomic_dataset
from bitgnn.data.files import RawFiles

PLANETOID_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
CITATION_FULL = {
    "Cora_ML": "cora_ml",
    "DBLP": "dblp",
    "Cora_Full": "cora",
    "CiteSeer_Full": "citeseer",
    "PubMed_Full": "pubmed",
}
"""Folders by name."""


@dataclass(frozen=True)
class Source:
    """One data set that a class of ``torch_geometric.datasets`` reads.

    Attributes:
        name: its usual name.
        class_name: the PyG class.
        argument: ``name`` argument of that class; empty if it has none.
        collection: folder that gathers the data sets of that class; empty for none.
        folder: the data set's folder, as the class names it.
        raw: names of its raw files.
    """

    name: str
    class_name: str
    argument: str
    collection: str
    folder: str
    raw: tuple[str, ...]

    @property
    def files(self) -> RawFiles:
        """Where the raw files may be."""
        paths = [f"raw/{file}" for file in self.raw]
        return RawFiles(self.name, self.collection, self.folder, paths)

    def open(self, base: str) -> Any:
        """The PyG data set; its folder lies in ``base``."""
        import torch_geometric.datasets

        kind = atomic_dataset(getattr(torch_geometric.datasets, self.class_name))
        if self.argument:
            return kind(root=base, name=self.argument)
        return kind(root=f"{base}/{self.folder}")


def normalized_name(name: str) -> str:
    """``name`` as it is compared: case, hyphens, underscores and spaces do not matter."""
    return name.lower().translate(str.maketrans("", "", "-_ "))


def _sources() -> Iterator[Source]:
    for name in ("Cora", "CiteSeer", "PubMed"):
        raw = tuple(f"ind.{name.lower()}.{part}" for part in PLANETOID_PARTS)
        yield Source(name, "Planetoid", name, "planetoid", name, raw)
    for name in ("Computers", "Photo"):
        file = f"amazon_electronics_{name.lower()}.npz"
        yield Source(name, "Amazon", name, "amazon", name, (file,))
    for name in ("CS", "Physics"):
        file = f"ms_academic_{name.lower()[:3]}.npz"
        yield Source(name, "Coauthor", name, "coauthor", name, (file,))
    for name, folder in CITATION_FULL.items():
        yield Source(name, "CitationFull", folder, "citationfull", folder, (f"{folder}.npz",))
    for name in ("Roman_Empire", "Amazon_Ratings", "Minesweeper", "Tolokers", "Questions"):
        folder, kind = name.lower(), "HeterophilousGraphDataset"
        yield Source(name, kind, folder, "heterophilous", folder, (f"{folder}.npz",))
    for name in ("Penn94", "Reed98", "Amherst41", "Cornell5", "JohnsHopkins55", "Genius"):
        splits = ("fb100-Penn94-splits.npy",) if name == "Penn94" else ()
        folder = name.lower()
        yield Source(name, "LINKXDataset", folder, "linkx", folder, ("data.mat", *splits))
    yield Source("Reddit", "Reddit", "", "", "reddit", ("reddit_data.npz", "reddit_graph.npz"))
    flickr = ("adj_full.npz", "feats.npy", "class_map.json", "role.json")
    yield Source("Flickr", "Flickr", "", "", "flickr", flickr)


SOURCES: dict[str, Source] = {normalized_name(source.name): source for source in _sources()}
"""Data sets by :func:`normalized_name`."""
