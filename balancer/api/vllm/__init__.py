"""vLLM's calls about tokens, which it has in addition to OpenAI's API."""
