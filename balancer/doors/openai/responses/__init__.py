"""OpenAI's Responses API: items in, items out, and the answers that are kept for later ones."""
