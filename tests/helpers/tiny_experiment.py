"""A tiny experiment on a graph as a configuration file, for tests of runs and of their tables."""

TINY = """
name: tiny
dataset: {name: digits}
hidden_channels: 8
seeds: 2
forms:
  fp32: {epochs: 3, learning_rate: 0.01}
  full: {epochs: 3, learning_rate: 0.01}
  bin: {epochs: 3, learning_rate: 0.01, distill: 1, teachers: [fp32, full], hidden_norm: batch}
"""
