"""Speculative decoding: the drafter port, prompt lookup, and how many drafted tokens pay.

May import: the engine's own words (`agent.engine`), `cost`. Comes in: `scheduling`, the worker.
"""
