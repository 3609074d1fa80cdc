"""What operators see and steer: REST, events, metrics, the dashboard's files.

May import: `fleet`, `api/transport`, `api/openapi`. Comes in: the daemon.
"""
