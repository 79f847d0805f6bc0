"""Whole graph networks against every form of PyG's."""
