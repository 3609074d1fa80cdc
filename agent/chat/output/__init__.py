"""Tokens to text: detokenizer, stop strings, and the attribution of tokens to parts of the text."""
