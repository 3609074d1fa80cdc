"""Speculative decoding: the drafter port, prompt lookup, and how many drafted tokens pay."""
