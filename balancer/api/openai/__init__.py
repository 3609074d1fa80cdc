"""The OpenAI API over the neutral request and the neutral stream of events.

The rooms here are the paths; what they share is in this one: answers and errors as types, fields
without effect, and `operations` for the OpenAPI document.

May import: `common`, `transport`, `openapi`, `fields`, `fleet`. Comes in: `api/app`.
"""
