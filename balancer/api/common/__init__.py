"""What the APIs share: events gathered or streamed, inputs in parts, models, token counts.

May import: `transport`, `openapi`, `fleet`. Comes in: every API.
"""
