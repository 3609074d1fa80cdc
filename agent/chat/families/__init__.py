"""Families of models: how each is recognised, and how it writes reasoning and calls.

Lives here: what a record says, the notations records choose from, recognition by template. The
records themselves are in `records`.
"""
