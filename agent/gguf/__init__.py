"""GGUF files: reading headers, and estimating the memory that a model takes and where it fits.

Nothing here fetches, loads or checks a file.
"""
