"""PyG's introductory tutorial GCN, in floats and binary, in one loop; fails if freezing changes it.

The graph is embedded: scikit-learn's digits, each linked to its nearest neighbours.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor, nn
from torch_geometric.data import Data

import bitgnn
from bitgnn.data import load_digits_graph
from bitgnn.measure.report import format_bytes

EPOCHS, MOST_POINTS = 200, 10.0


class GCN(nn.Module):
    """Two layers, a ReLU and dropout between them."""

    def __init__(self, layer: type[nn.Module], features: int, classes: int) -> None:
        super().__init__()
        self.conv1 = layer(features, 64)
        self.conv2 = layer(64, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Scores of every node."""
        x = F.relu(self.conv1(x, edge_index))
        x = F.dropout(x, p=0.5, training=self.training)
        out: Tensor = self.conv2(x, edge_index)
        return out


def train(model: nn.Module, data: Data) -> None:
    """The tutorial's loop."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        F.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()


def main() -> int:
    """Entry point."""
    data = load_digits_graph()
    models, scores, classes = {}, {}, {}
    for name, layer in (("fp32", torch_geometric.nn.GCNConv), ("binary", bitgnn.nn.GCNConv)):
        torch.manual_seed(0)
        model = models[name] = GCN(layer, data.num_features, int(data.y.max()) + 1)
        train(model, data)
        model.eval()
        with torch.no_grad():
            classes[name] = model(data.x, data.edge_index).argmax(1)
        right = classes[name] == data.y
        scores[name] = 100 * float(right[data.test_mask].float().mean())
        print(f"{name}: {scores[name]:.1f} % of the test nodes are right")
    frozen = bitgnn.freeze(models["binary"])
    different = int((frozen(data.x, data.edge_index).argmax(1) != classes["binary"]).sum())
    print(f"frozen: {different} of {data.num_nodes} nodes differ from the trained model")
    floats = sum(parameter.nbytes for parameter in models["fp32"].parameters())
    packed = sum(buffer.nbytes for buffer in frozen.buffers())
    print(f"weights: {format_bytes(floats)} in fp32, {format_bytes(packed)} frozen")
    if different:
        print("FAILED: the frozen model predicts other classes than the trained one")
        return 1
    if scores["binary"] < scores["fp32"] - MOST_POINTS:
        print(f"FAILED: binary is more than {MOST_POINTS:.0f} points behind fp32")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
