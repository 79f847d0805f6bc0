"""Names of the real data sets, the files each consists of, and the PyG class that reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bitgnn.data.files import RawFiles
from bitgnn.data.whole import whole

__all__ = ["SOURCES", "Source", "normalized_name"]

PLANETOID_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


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

    def open(self, base: str, dataset_class: type | None = None) -> Any:
        """The PyG data set; its folder lies in ``base``.

        Args:
            base: parent of the data set's folder.
            dataset_class: used instead of the class named.
        """
        import torch_geometric.datasets

        kind = whole(dataset_class or getattr(torch_geometric.datasets, self.class_name))
        if self.argument:
            return kind(root=base, name=self.argument)
        return kind(root=f"{base}/{self.folder}")


def normalized_name(name: str) -> str:
    """``name`` as it is compared: case, hyphens, underscores and spaces do not matter."""
    return name.lower().translate(str.maketrans("", "", "-_ "))


def _planetoid(name: str) -> Source:
    raw = tuple(f"ind.{name.lower()}.{part}" for part in PLANETOID_PARTS)
    return Source(name, "Planetoid", name, "planetoid", name, raw)


def _amazon(name: str) -> Source:
    raw = (f"amazon_electronics_{name.lower()}.npz",)
    return Source(name, "Amazon", name, "amazon", name, raw)


def _coauthor(name: str) -> Source:
    raw = (f"ms_academic_{name.lower()[:3]}.npz",)
    return Source(name, "Coauthor", name, "coauthor", name, raw)


def _citation_full(name: str, folder: str) -> Source:
    return Source(name, "CitationFull", folder, "citationfull", folder, (f"{folder}.npz",))


def _heterophilous(name: str) -> Source:
    folder = name.lower()
    raw = (f"{folder}.npz",)
    return Source(name, "HeterophilousGraphDataset", folder, "heterophilous", folder, raw)


def _linkx(name: str, *splits: str) -> Source:
    folder = name.lower()
    return Source(name, "LINKXDataset", folder, "linkx", folder, ("data.mat", *splits))


_ALL = (
    *map(_planetoid, ("Cora", "CiteSeer", "PubMed")),
    *map(_amazon, ("Computers", "Photo")),
    *map(_coauthor, ("CS", "Physics")),
    _citation_full("Cora_ML", "cora_ml"),
    _citation_full("DBLP", "dblp"),
    _citation_full("Cora_Full", "cora"),
    _citation_full("CiteSeer_Full", "citeseer"),
    _citation_full("PubMed_Full", "pubmed"),
    *map(
        _heterophilous,
        ("Roman_Empire", "Amazon_Ratings", "Minesweeper", "Tolokers", "Questions"),
    ),
    _linkx("Penn94", "fb100-Penn94-splits.npy"),
    *map(_linkx, ("Reed98", "Amherst41", "Cornell5", "JohnsHopkins55", "Genius")),
    Source("Reddit", "Reddit", "", "", "reddit", ("reddit_data.npz", "reddit_graph.npz")),
    Source(
        "Flickr",
        "Flickr",
        "",
        "",
        "flickr",
        ("adj_full.npz", "feats.npy", "class_map.json", "role.json"),
    ),
)

SOURCES: dict[str, Source] = {normalized_name(source.name): source for source in _ALL}
"""Data sets by :func:`normalized_name`."""
