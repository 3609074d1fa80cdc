"""Prefixes that agents transfer to each other: one sends what another shows a ticket for.

A balancer gives both sides a ticket. What goes over the connection is the format of stored
prompts (`engine.prompt_store`), so lengths, tokens, model and checksum are checked as those of a
file are. Sockets block, and belong to threads of their own: neither the event loop nor the engine's
thread waits for a peer.
"""
