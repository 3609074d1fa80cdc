"""Tokens to text: detokenizer, stop strings, and which text log-probabilities belong to."""
