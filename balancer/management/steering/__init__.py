"""What operators steer: the desired state, its models, drains and reloads of agents."""
