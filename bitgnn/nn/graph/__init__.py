"""Graph layers with names and signatures of PyG: GCNConv, SAGEConv and GraphConv."""
