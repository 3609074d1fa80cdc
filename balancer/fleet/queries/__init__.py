"""Queries, which take no slot: cut into parts, dispatched to agents, put together again.

May import: the fleet's vocabulary, `requests`' matching. Comes in: `fleet`, `runtime`, `api`.
"""
