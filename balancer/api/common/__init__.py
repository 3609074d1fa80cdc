"""Shared by the APIs: collecting and streaming events, splitting inputs, models, token counts.

May import: `route`, `transport`, `fleet`. Comes in: every API.
"""
