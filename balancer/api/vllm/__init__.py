"""vLLM's calls about tokens, which stand beside its OpenAI API.

May import: `route`, `endpoint`, `transport`, `common`, `fields`, `fleet`.
Comes in: `api/app`.
"""
