"""Constraints: compile JSON Schema, GBNF, regular expressions and forced calls to one grammar."""
