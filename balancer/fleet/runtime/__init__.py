"""The shell around the fleet's core: the event loop, agents' sockets, clients' streams."""
