"""TorchScript of float layers: the PyG layer that a layer in full precision is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch_geometric.inspector import Inspector

if TYPE_CHECKING:
    from bitgnn.nn.graph.binary_layer import BinaryLayer

__all__ = ["as_pyg_layer"]


def as_pyg_layer(layer: BinaryLayer, parent: type) -> Any:
    """A layer of PyG's own class that shares the parameters of a float layer.

    ``torch.jit.script`` compiles the source of ``forward``, which here tells precisions apart in
    ways TorchScript has no words for; PyG's class has only the float one.

    Args:
        layer: the layer to share.
        parent: PyG's class.

    Returns:
        An instance of ``parent``; it shares parameters, buffers, submodules and settings.

    Raises:
        RuntimeError: the layer is binary, adds dropout in training, or is of a user's own class.
    """
    name = type(layer).__name__
    if not layer.letters.is_float:
        raise RuntimeError(
            f"{name}: TorchScript compiles precision 'fp32' alone, got {layer.precision!r}; "
            "use torch.compile, or bitgnn.freeze for inference"
        )
    if layer.dropout > 0.0 and layer.training:
        raise RuntimeError(f"{name}: TorchScript has no dropout in layers; call eval() before")
    if parent not in type(layer).__bases__:
        raise RuntimeError(f"{name}: TorchScript does not compile subclasses of bitgnn's layers")
    twin: Any = object.__new__(parent)
    inspector = Inspector(parent)
    # What PyG's constructor inspects, for the class that the twin has.
    inspector.inspect_signature(parent.message)  # type: ignore[attr-defined]
    inspector.inspect_signature(parent.aggregate, exclude=[0, "aggr"])  # type: ignore[attr-defined]
    inspector.inspect_signature(parent.message_and_aggregate, [0])  # type: ignore[attr-defined]
    inspector.inspect_signature(parent.update, exclude=[0])  # type: ignore[attr-defined]
    inspector.inspect_signature(parent.edge_update)  # type: ignore[attr-defined]
    state = {key: value for key, value in vars(layer).items() if key != "propagate"}
    twin.__setstate__({**state, "inspector": inspector})
    return twin
