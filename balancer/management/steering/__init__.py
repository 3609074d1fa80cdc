"""Steering of the fleet: the desired state, its models, drains and reloads of agents."""
