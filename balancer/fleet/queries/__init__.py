"""Queries, which take no slot: cut into parts, dispatched to agents, put together again."""
