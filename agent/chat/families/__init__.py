"""Families of models: how each is recognised, and how it writes reasoning and calls.

This package holds the type of a family's record, the call notations, and recognition by template.
The records themselves are in `records`.
"""
