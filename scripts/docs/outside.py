"""Hook of mkdocs: names of torch and PyG in signatures and docstrings lead to their own pages."""

from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.nav import Navigation

TORCH = "https://docs.pytorch.org/docs/stable"
PYG = "https://pytorch-geometric.readthedocs.io/en/latest"
PAGES = {
    "torch.Tensor": f"{TORCH}/tensors.html",
    "torch.Tensor.index_select": f"{TORCH}/generated/torch.Tensor.index_select.html",
    "torch.device": f"{TORCH}/tensor_attributes.html",
    "torch.dtype": f"{TORCH}/tensor_attributes.html",
    "torch.Generator": f"{TORCH}/generated/torch.Generator.html",
    "torch.nn.Module": f"{TORCH}/generated/torch.nn.Module.html",
    "torch.nn.Linear": f"{TORCH}/generated/torch.nn.Linear.html",
    "torch.nn.Conv2d": f"{TORCH}/generated/torch.nn.Conv2d.html",
    "torch.nn.MultiheadAttention": f"{TORCH}/generated/torch.nn.MultiheadAttention.html",
    "torch.optim.Optimizer": f"{TORCH}/optim.html",
    "torch.utils.data.DataLoader": f"{TORCH}/data.html",
    "torch.distributed.device_mesh.DeviceMesh": f"{TORCH}/distributed.html",
    **{
        f"torch_geometric.data.{name}": f"{PYG}/generated/torch_geometric.data.{name}.html"
        for name in ("Data", "HeteroData", "Batch", "Dataset")
    },
    **{
        f"torch_geometric.nn.conv.{name}": f"{PYG}/generated/torch_geometric.nn.conv.{name}.html"
        for name in ("GCNConv", "SAGEConv", "GraphConv", "MessagePassing")
    },
}
"""Full names, also those of modules that hold them, and their pages."""


def on_nav(nav: Navigation, *, config: MkDocsConfig, files: Files) -> Navigation:
    """Tell the plugin that links names where these are; nothing is fetched."""
    autorefs: Any = config.plugins["autorefs"]
    for name, address in PAGES.items():
        autorefs.register_url(name, address)
    return nav
