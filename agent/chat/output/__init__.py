"""Tokens to text: detokenizer, stop strings, and which text log-probabilities belong to.

May import: the engine's log-probabilities. Comes in: `generation`.
"""
