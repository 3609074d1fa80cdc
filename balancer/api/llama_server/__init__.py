"""llama-server's own calls, which its clients use beside OpenAI's."""
