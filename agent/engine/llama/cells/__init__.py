"""The cells of llama.cpp's KV cache: their layout, edits, and the format of their states.

This package chooses between one stream per sequence and one cache for all, and has an
implementation for both. It carries out a step's edits, and reads llama.cpp's format of a
sequence's state.
"""
