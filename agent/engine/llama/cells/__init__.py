"""The cells of llama.cpp's KV cache: their layout, edits of them, states of what they contain.

Lives here: the choice between a stream for each sequence and one cache for all, the cells of each,
what carries a step's edits out, and llama.cpp's format of a sequence's state.
"""
