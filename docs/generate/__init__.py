"""Writes the reference pages and pictures of `docs/` that are generated from code."""
