"""The shell around the fleet's core: the event loop, agents' sockets, clients' streams.

May import: `fleet`. Comes in: `api`, `management`, the daemon.
"""
