"""The Anthropic Messages API over the neutral request and the neutral stream of events.

May import: `common`, `transport`, `openapi`, `fleet`. Comes in: `api/app`.
"""
