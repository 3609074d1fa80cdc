"""Shared by the APIs: collecting and streaming events, splitting inputs, models, token counts."""
