"""Tokens to text: whole characters, stop strings, log-probabilities beside their text.

May import: the engine's log-probabilities. Comes in: `generation`.
"""
