"""Constraints: JSON Schema, GBNF, regular expressions and forced calls, as one grammar to compile.

May import: `families`, `calls`, `parsing`, and the engine's `grammar`. Comes in: `generation`.
"""
