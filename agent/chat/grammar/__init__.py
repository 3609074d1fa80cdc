"""Constraints: JSON Schema, GBNF, regular expressions and forced calls, compiled as one grammar.

May import: `families`, `calls`, `parsing`, and the engine's `grammar`. Comes in: `generation`.
"""
