"""Measuring: timers, memory of a call, the machine it ran on, PyG's GCN to compare with."""
