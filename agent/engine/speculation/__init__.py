"""Speculative decoding: who proposes drafts, and which of them pay."""
