"""Shared by the APIs: collecting and streaming events, splitting inputs, models, token counts.

May import: `transport`, `openapi`, `fleet`. Comes in: every API.
"""
