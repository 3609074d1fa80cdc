"""Compiled grammars, and the masks of the tokens that they allow next."""
