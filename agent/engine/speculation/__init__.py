"""Speculative decoding: what proposes drafts, and which of them pay."""
