"""From a row of logits to a token: filters, penalties, mirostat, log-probabilities.

May import: the engine's vocabulary and its `grammar`. Comes in: `llama`, `generation`.
"""
