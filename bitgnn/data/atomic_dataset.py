"""PyG data sets whose files are put in place only when they are whole, their pickles known."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from bitgnn.data.download import download_file
from bitgnn.data.files import DataError

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


def check_pickles(paths: Iterable[str | os.PathLike[str]]) -> None:
    """Refuse raw files that are pickles of unknown contents, before PyG opens them.

    The environment variable ``BITGNN_TRUST_PICKLES=1`` lets them through.

    Args:
        paths: raw files; those that are not pickles are left alone.

    Raises:
        DataError: a pickle is not the published file.
        OSError: a file cannot be read.
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


INCOMPLETE = ".incomplete"


class _AtomicFiles:
    """Mixed in front of a PyG data set class: it works in folders that are renamed when done."""

    _working_on = ""

    @property
    def raw_dir(self) -> str:
        """Where raw files are, or are being gathered."""
        folder: str = super().raw_dir  # type: ignore[misc]
        return folder + INCOMPLETE * (self._working_on == "raw")

    @property
    def processed_dir(self) -> str:
        """Where PyG keeps what it made of the raw files, or is making it."""
        folder: str = super().processed_dir  # type: ignore[misc]
        # Processes that make the same files at a time keep out of each other's way.
        return folder + f"{INCOMPLETE}.{os.getpid()}" * (self._working_on == "processed")

    def download(self) -> None:
        """As in PyG, with progress, resumption and verified lengths."""
        with self._gather("raw"), resumable_downloads(type(self).__mro__[2].__module__):
            super().download()  # type: ignore[misc]

    def _process(self) -> None:
        """As in PyG, which unpickles notes on transforms: no more than text is let through."""
        for name in ("pre_transform.pt", "pre_filter.pt"):
            note = Path(self.processed_dir, name)
            if note.exists():
                torch.load(note, weights_only=True)
        super()._process()  # type: ignore[misc]

    def process(self) -> None:
        """As in PyG, with raw files that are pickles checked."""
        check_pickles(self.raw_paths)  # type: ignore[attr-defined]
        with self._gather("processed"):
            super().process()  # type: ignore[misc]

    @contextlib.contextmanager
    def _gather(self, kind: str) -> Iterator[None]:
        final = Path(getattr(self, f"{kind}_dir"))
        self._working_on = kind
        staging = Path(getattr(self, f"{kind}_dir"))
        try:
            staging.mkdir(parents=True, exist_ok=True)
            yield
        except BaseException:
            if kind == "processed":  # a download goes on later, this begins anew
                shutil.rmtree(staging, ignore_errors=True)
            raise
        finally:
            self._working_on = ""
        final.mkdir(parents=True, exist_ok=True)
        for path in staging.iterdir():
            path.replace(final / path.name)
        staging.rmdir()


def atomic_dataset(dataset_class: type) -> type:
    """A subclass of a PyG data set class whose files appear whole or not at all.

    What is downloaded lies in ``raw.incomplete`` until it is complete, so that an interruption
    leaves nothing that looks finished and a later call goes on; what is made of it lies in
    ``processed.incomplete.PID``.

    Args:
        dataset_class: subclass of ``torch_geometric.data.Dataset`` with a ``download`` method.

    Returns:
        The subclass, of the same name.
    """
    return type(dataset_class.__name__, (_AtomicFiles, dataset_class), {})


@contextlib.contextmanager
def resumable_downloads(module_name: str) -> Iterator[None]:
    """While inside, what ``module_name`` fetches goes through :func:`download_file`.

    PyG's ``download_url`` takes a part for the whole after an interruption; its ``fs.cp`` shows no
    progress. The names are looked up in the modules at each call, so replacing them there is
    enough.
    """
    from torch_geometric.data import download
    from torch_geometric.io import fs

    replacements: list[tuple[Any, str, Any]] = [
        (download, "download_url", download_file),
        (fs, "cp", _fetching(fs.cp)),
    ]
    if hasattr(sys.modules[module_name], "download_url"):
        replacements.append((sys.modules[module_name], "download_url", download_file))
    originals = [getattr(owner, name) for owner, name, _ in replacements]
    try:
        for owner, name, value in replacements:
            setattr(owner, name, value)
        yield
    finally:
        for (owner, name, _), original in zip(replacements, originals, strict=True):
            setattr(owner, name, original)


def _fetching(copy: Callable[..., None]) -> Callable[..., None]:
    """PyG's ``fs.cp`` with single files of the web fetched by :func:`download_file`."""

    def cp(source: str, target: str, *args: Any, **kwargs: Any) -> None:
        if source.startswith(("http://", "https://")) and not args and not kwargs:
            download_file(source, target)
        else:
            copy(source, target, *args, **kwargs)

    return cp
