"""From a row of logits to a token: filters, penalties, mirostat, log-probabilities."""
