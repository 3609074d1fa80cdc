"""Adapters of llama.cpp: loaded beside a model, and set for a step.

May import: the engine's vocabulary, llama.cpp. Comes in: the room above, which has model and
context.
"""
