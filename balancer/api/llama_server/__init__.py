"""llama-server's own calls, which its clients use in addition to OpenAI's."""
