"""Ollama's API over the neutral request and the neutral stream of events.

May import: `common`, `transport`, `openapi`, `fields`, `fleet`; OpenAI's words for reasoning.
Comes in: `api/app`.
"""
