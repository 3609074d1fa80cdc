"""Queries, which use no slot: they are split into parts, dispatched to agents, and their results
joined."""
