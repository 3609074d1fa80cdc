"""Chooses a token from a row of logits: filters, penalties, mirostat, log-probabilities."""
