"""Requests that take a slot: the queue, the choice of an agent, one request's life.

May import: the fleet's vocabulary. Comes in: `fleet`.
"""
