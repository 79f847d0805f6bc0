"""A user's own graph: an ``.npz`` file or a class of PyG."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, Dataset
from torch_geometric.utils import to_undirected

from bitgnn._files import FileError
from bitgnn._interpreter import imported, is_import_path, warn
from bitgnn.data.files import DataError, data_root
from bitgnn.data.npz_graphs import BOTH_WAYS, Found, read_npz
from bitgnn.data.splits import MASKS, Split, public_split, share_split

NPZ = ".npz"
TENSORS = ("x", "edge_index", "edge_weight", "y", *MASKS)


def is_own_graph(name: str) -> bool:
    """True if ``name`` is a path or an import path, not the name of a known data set."""
    return is_import_path(name) or name.lower().endswith(NPZ) or os.sep in name


def graph_title(name: str) -> str:
    """A short name for messages and folders: a path's last part without its ending."""
    if is_import_path(name):
        return name.rpartition(":")[2]
    return Path(name).resolve().stem if is_own_graph(name) else name


def read_graph(
    name: str | os.PathLike[str],
    root: str | os.PathLike[str] | None = None,
    *,
    split: Split = None,
    seed: int = 0,
) -> Data:
    """Read a graph of one's own.

    * ``FILE.npz`` in the form of public files: ``adj_data``, ``adj_indices``, ``adj_indptr``,
      ``adj_shape`` (CSR; values other than 1 are weights, and as in PyG's reader loops are left out
      and edges go both ways), the same of ``attr_`` for features, and ``labels``.
    * ``FILE.npz`` with plain arrays: ``x`` (or ``features``, ``node_features``) ``[N, F]``;
      ``edge_index`` ``[2, E]`` from source to target, or ``edges`` ``[E, 2]`` that go both ways,
      with ``edge_weight`` ``[E]`` or without (two weights of one pair give their mean both ways);
      ``y`` (or ``labels``, ``node_labels``); ``train_mask``, ``val_mask`` and ``test_mask``
      ``[N]``, or several splits ``[N, S]`` (``train_masks`` ``[S, N]``). Both forms mix.
    * ``package.module:Class``: a data set of PyG that holds one graph, or a function that makes
      one, called with ``root`` if it takes that. Modules in the working directory are found.

    Nothing is unpickled. Labels are integers ``[N]`` (negative: none), or floats ``[N]`` or
    ``[N, C]`` for values and for several labels a node. Without masks, 60, 20 and 20 per cent of
    the labelled nodes are drawn for training, validation and test; a warning says so.

    Args:
        name: path or import path.
        root: folder for the class; None takes the environment variable ``BITGNN_DATA``, else
            ``./data``.
        split: which split where there are several; None is the first, ``"random"`` draws one.
        seed: of the draw.

    Returns:
        ``Data`` with ``x`` float32 ``[N, F]``, ``edge_index`` int64 ``[2, E]``, ``edge_weight``
        float32 ``[E]`` where there is one, ``y`` int64 ``[N]`` or float32, boolean masks ``[N]``,
        ``name``, and ``synthetic``, which is False.

    Raises:
        FileError: something is missing, damaged, too large or out of range; the message names file
            and key.
        DataError: the class cannot be called or gives something else than one graph.
        ValueError: the module cannot be imported, or there is no such split.
    """
    source = os.fspath(name)
    if is_import_path(source):
        found = _from_class(source, root)
    else:
        found = read_npz(Path(source))
    data = _checked(found, source)
    if MASKS[0] in data and split != "random":
        chosen = public_split([data[key] for key in MASKS], split)
        if bool((chosen[0] & (chosen[1] | chosen[2])).any()):
            raise FileError(f"{source}: {found[MASKS[0]][0]}: holds nodes of another mask too")
    else:
        y = data.y
        labelled = y >= 0 if not y.is_floating_point() else y.isfinite().view(len(y), -1).all(1)
        try:
            chosen = share_split(labelled, seed)
        except ValueError as error:
            raise FileError(f"{source}: {error}") from error
        if split != "random":
            warn(
                f"{source}: has no masks; 60, 20 and 20 per cent of the labelled nodes are drawn "
                f"for training, validation and test with seed {seed}"
            )
    for key, mask in zip(MASKS, chosen, strict=True):
        data[key] = mask
    data.name, data.synthetic = graph_title(source), False
    return data


def one_graph(dataset: Any, title: str) -> Data:
    """The graph of a data set of PyG, or the graph itself."""
    data = dataset
    if isinstance(dataset, Dataset):
        if len(dataset) != 1:
            raise DataError(f"{title}: must hold one graph, got {len(dataset)}")
        data = dataset[0]
    if not isinstance(data, Data):
        raise TypeError(
            "dataset must be a PyG data set or a Data with one kind of nodes, "
            f"got {type(data).__name__}"
        )
    return data


def _from_class(name: str, root: str | os.PathLike[str] | None) -> Found:
    make = imported(name)
    try:
        takes_root = "root" in inspect.signature(make).parameters
        dataset = make(root=str(data_root(root))) if takes_root else make()
    except Exception as error:  # it may do anything
        raise DataError(
            f"{name}: cannot be called with {'root alone' if callable(make) else 'anything'} "
            f"({type(error).__name__}: {error})"
        ) from error
    try:
        data = one_graph(dataset, name)
    except TypeError as error:
        raise DataError(f"{name}: {error}") from error
    tensors = {key: getattr(data, key, None) for key in TENSORS}
    return {key: (key, t) for key, t in tensors.items() if isinstance(t, Tensor)}


def _checked(found: Found, source: str) -> Data:
    """The graph, after checking that its parts fit together."""
    missing = [name for name in ("x", "edge_index", "y") if name not in found]
    if missing:
        raise FileError(f"{source}: {', '.join(missing)} missing")
    plain = {name: (f"{source}: {key}", _plain(t, source, key)) for name, (key, t) in found.items()}
    where, x = plain["x"]
    if x.dim() != 2 or x.size(0) == 0:
        raise FileError(f"{where}: must be [N, F] with a node at least, got {list(x.shape)}")
    nodes = x.size(0)
    edge_index = _edges(*plain["edge_index"], nodes)
    weight = _weight(*plain["edge_weight"], edge_index) if "edge_weight" in plain else None
    if found["edge_index"][0] in BOTH_WAYS and weight is None:
        edge_index = to_undirected(edge_index, num_nodes=nodes)
    elif found["edge_index"][0] in BOTH_WAYS:
        edge_index, weight = to_undirected(edge_index, weight, nodes, reduce="mean")
    data = Data(x=x.float(), edge_index=edge_index, y=_labels(*plain["y"], nodes))
    if weight is not None:
        data.edge_weight = weight
    present = [name for name in MASKS if name in plain]
    if 0 < len(present) < len(MASKS):
        absent = next(name for name in MASKS if name not in plain)
        raise FileError(f"{source}: {absent} missing; all three masks are needed, or none")
    for name in present:
        data[name] = _mask(*plain[name], nodes)
    return data


def _plain(tensor: Tensor, source: str, key: str) -> Tensor:
    if tensor.is_complex():
        raise FileError(f"{source}: {key}: must be real, got {tensor.dtype}")
    dense = tensor if tensor.layout == torch.strided else tensor.to_dense()
    if dense.is_floating_point():
        return dense.float()
    return dense if dense.dtype == torch.bool else dense.long()


def _edges(where: str, edge_index: Tensor, nodes: int) -> Tensor:
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.dtype != torch.int64:
        raise FileError(
            f"{where}: must be two integers an edge, got {edge_index.dtype} "
            f"{list(edge_index.shape)}"
        )
    check_nodes(f"{where}:", edge_index, nodes, FileError)
    return edge_index.contiguous()


def _weight(where: str, weight: Tensor, edge_index: Tensor) -> Tensor:
    if weight.shape != edge_index.shape[1:]:
        raise FileError(f"{where}: must be [{edge_index.size(1)}], got {list(weight.shape)}")
    if not bool(torch.isfinite(weight).all()):
        raise FileError(f"{where}: must hold finite weights, got NaN or infinity")
    return weight.float()


def check_nodes(where: str, edge_index: Tensor, nodes: int, error: type[Exception]) -> None:
    """Refuse node indices out of range."""
    if edge_index.numel():
        least, greatest = (int(end) for end in edge_index.aminmax())
        if not 0 <= least <= greatest < nodes:
            raise error(f"{where} must hold nodes from 0 to {nodes - 1}, got {least} to {greatest}")


def _labels(where: str, y: Tensor, nodes: int) -> Tensor:
    if y.dim() == 2 and y.size(1) == 1:
        y = y.squeeze(1)
    if y.dim() not in (1, 2) or y.size(0) != nodes or y.numel() == 0:
        raise FileError(f"{where}: must be [{nodes}] or [{nodes}, C], got {list(y.shape)}")
    if y.dim() == 2:
        return y.float()
    if not y.is_floating_point() and int(y.max()) >= nodes:
        raise FileError(f"{where}: must hold classes from 0 on, got {int(y.max())}")
    return y if y.is_floating_point() else y.long()


def _mask(where: str, mask: Tensor, nodes: int) -> Tensor:
    if mask.dim() not in (1, 2) or mask.size(0) != nodes or mask.numel() == 0:
        raise FileError(f"{where}: must be [{nodes}] or [{nodes}, splits], got {list(mask.shape)}")
    if mask.is_floating_point() or not bool(((mask == 0) | (mask == 1)).all()):
        raise FileError(f"{where}: must hold booleans, got {mask.dtype}")
    return mask.bool()
