"""Arriero's own API, over HTTP and over one WebSocket with many requests.

May import: `route`, `endpoint`, `common`, `transport`, `openapi`, `fleet`. Comes in: `api/app`;
`management` serves one of its routes.
"""
