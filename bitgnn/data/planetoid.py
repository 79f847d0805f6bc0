"""Cora, CiteSeer and PubMed through PyG, offline where the raw files are at hand."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid

__all__ = ["DataError", "load_planetoid"]

NAMES = ("Cora", "CiteSeer", "PubMed")
PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
DATA_VARIABLE = "BITGNN_DATA"
DEFAULT_ROOT = Path("data")
COLLECTION = "planetoid"


class DataError(RuntimeError):
    """A data set is missing or unreadable; the message says what belongs where."""


def load_planetoid(name: str, root: str | os.PathLike[str] | None = None) -> Data:
    """One of the citation graphs with its public split, features as stored.

    The raw files are looked for in ``ROOT/<name>/raw`` and ``ROOT/planetoid/<name>/raw``. A
    folder that cannot be written is copied (raw files only) to the user's cache folder, because
    PyG writes ``processed/`` beside ``raw/``. Without raw files PyG downloads them into ``ROOT``.

    Args:
        name: ``"Cora"``, ``"CiteSeer"`` or ``"PubMed"``.
        root: data folder; None takes the environment variable ``BITGNN_DATA``, else ``./data``.

    Returns:
        ``Data`` with ``x`` float32 ``[N, F]``, ``edge_index`` int64 ``[2, E]``, ``y`` int64
        ``[N]`` and the boolean masks ``train_mask``, ``val_mask``, ``test_mask``.

    Raises:
        ValueError: ``name`` is none of the three.
        DataError: the files are missing and cannot be downloaded, or cannot be read.
    """
    if name not in NAMES:
        raise ValueError(f"load_planetoid: name must be one of {list(NAMES)}, got {name!r}")
    folder = Path(root or os.environ.get(DATA_VARIABLE) or DEFAULT_ROOT)
    found = next((base for base in _bases(folder) if _is_complete(base / name, name)), None)
    if found is None:
        return _download(name, folder)
    base = found if _is_writable(found / name) else _copy_to_cache(found / name, name)
    try:
        return Planetoid(root=str(base), name=name)[0]
    except Exception as error:
        raise DataError(f"{name}: files in {base / name} cannot be read: {error}") from error


def _bases(root: Path) -> Iterator[Path]:
    yield root
    yield root / COLLECTION


def _raw_files(name: str) -> list[str]:
    return [f"ind.{name.lower()}.{part}" for part in PARTS]


def _is_complete(folder: Path, name: str) -> bool:
    return all((folder / "raw" / file).is_file() for file in _raw_files(name))


def _is_writable(folder: Path) -> bool:
    """Whether files may be added; a folder without any write permission counts as read-only.

    The mode is looked at too, because root passes ``os.access`` everywhere.
    """
    return os.access(folder, os.W_OK) and bool(stat.S_IMODE(folder.stat().st_mode) & 0o222)


def _copy_to_cache(folder: Path, name: str) -> Path:
    """Copy the raw files beside earlier copies, whole or not at all."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bitgnn" / COLLECTION
    target = cache / name / "raw"
    sources = [folder / "raw" / file for file in _raw_files(name)]
    if all(_same_size(source, target / source.name) for source in sources):
        return cache
    try:
        target.mkdir(parents=True, exist_ok=True)
        for source in sources:
            handle, temporary = tempfile.mkstemp(dir=target)
            os.close(handle)
            shutil.copyfile(source, temporary)
            Path(temporary).replace(target / source.name)
    except OSError as error:
        raise DataError(
            f"{name}: {folder} is read-only and cannot be copied to {target}: {error}"
        ) from error
    # Made from the files that were just replaced.
    shutil.rmtree(cache / name / "processed", ignore_errors=True)
    return cache


def _same_size(source: Path, target: Path) -> bool:
    return target.is_file() and target.stat().st_size == source.stat().st_size


def _download(name: str, root: Path) -> Data:
    raw = root / name / "raw"
    try:
        return Planetoid(root=str(root), name=name)[0]
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise DataError(
            f"{name}: raw files not found under {root} and not downloaded ({reason}). Put "
            f"{', '.join(_raw_files(name))} into {raw}, or name their folder with --data-root or "
            f"{DATA_VARIABLE}"
        ) from error
