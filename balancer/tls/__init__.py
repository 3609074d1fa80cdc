"""TLS on the balancer's ports: certificates that may change, and the layer between TCP and HTTP.

May import: `shared`. Comes in: `api.transport`, the daemon.
"""
