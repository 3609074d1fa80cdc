"""Embeddings from a second context over the same weights, in turns with the engine's steps."""
