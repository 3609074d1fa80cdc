"""The shell around the core of the fleet: event loop, agents' sockets, clients' streams."""
