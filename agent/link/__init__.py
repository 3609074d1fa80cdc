"""The agent's side of the socket to a balancer: a pure session under a thin connection."""
