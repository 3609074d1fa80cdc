"""Arriero's own API, over HTTP and over one WebSocket with many requests.

May import: `common`, `transport`, `openapi`, `fleet`. Comes in: `api/app`.
"""
