"""Makes a PyG data set class put its files in place only when they are whole."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from bitgnn.data.download import download_file
from bitgnn.data.pickles import check_pickles

__all__ = ["atomic_dataset", "resumable_downloads"]

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
