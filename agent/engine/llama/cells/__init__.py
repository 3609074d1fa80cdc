"""The cells of llama.cpp's KV cache: their layout, edits, and the format of their states.

This package chooses between one stream per sequence and one cache for all, has the cells of each,
carries out a step's edits, and reads llama.cpp's format of a sequence's state.
"""
