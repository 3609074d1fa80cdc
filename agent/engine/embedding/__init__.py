"""Vectors from a second context over the same weights, in turns with the engine's steps.

May import: the engine's vocabulary. Comes in: `llama`, `link`, the daemon.
"""
