"""The users of a run's fleet: clients that stay, clients that do not, and an operator."""
