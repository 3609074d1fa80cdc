"""Families of models: how each is recognised, and how it writes reasoning and calls.

Lives here: one record a family, the notations they choose from, recognition by template.
May import: `calls`. Comes in: `parsing`, `grammar`, `generation`.
"""
