"""Ollama's API over the neutral request and the neutral stream of events.

May import: `route`, `endpoint`, `common`, `transport`, `fields`, `fleet`; OpenAI's words for
reasoning. Comes in: `api/app`.
"""
