"""Transfer of prefixes between agents: an agent sends a prefix to a peer that shows a ticket.

A balancer gives both sides a ticket. Prefixes travel in the format of stored prompts
(`engine.prompt_store`), so lengths, tokens, model and checksum are checked as for files. Sockets
block on threads of their own: neither the event loop nor the engine's thread waits for a peer.
"""
