"""vLLM's calls about tokens, which stand beside its OpenAI API.

May import: `common`, `transport`, `openapi`, `fields`, `openai.operations`, `fleet`.
Comes in: `api/app`.
"""
