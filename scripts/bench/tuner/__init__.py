"""Recordings of every plan: what the tuner is judged by and its predictor learns from."""
