"""Tokens to text: detokenizer, stop strings, and which part of the text a token belongs to."""
