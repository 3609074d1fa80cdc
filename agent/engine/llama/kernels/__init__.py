"""Which matrix kernels of llama.cpp can be trusted on this processor, found out by trying them.

Lives here: a small model made on the spot, a check that a child process runs with it, and the
choice that follows.
"""
