"""The Anthropic Messages API over the neutral request and the neutral stream of events.

May import: `route`, `endpoint`, `common`, `transport`, `fields`, `fleet`. Comes in: `api/app`.
"""
