"""Models of a fleet: the sources of their files, and the agents' assignments."""
