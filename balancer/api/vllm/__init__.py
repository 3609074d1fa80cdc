"""vLLM's calls about tokens, which stand beside its OpenAI API."""
