"""Writes the reference pages and pictures of `docs/` that follow from the code."""
