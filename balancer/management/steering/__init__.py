"""What operators steer: the desired state, its models, drains and reloads of agents.

May import: `api` (its transport), `control`, the fleet's runtime, `store`'s records.
Comes in: `management`, the daemon.
"""
