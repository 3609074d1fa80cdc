"""Constraints: JSON Schema, GBNF, regular expressions and forced calls, compiled as one grammar."""
