"""The tuner: precision, layout and executor for a model and a graph."""
