"""Whole graph networks beside every form of PyG's."""
