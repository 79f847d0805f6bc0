"""Measuring: timers, memory of a call, the machine it ran on, graphs as PyG takes them."""
