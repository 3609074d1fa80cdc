"""Speculative decoding: drafters that propose tokens, and the choice of drafts that pay."""
