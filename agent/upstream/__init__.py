"""Generation by a server: forwards requests to an OpenAI-compatible server.

`protocol` is the language of such servers. The shells are `client` (HTTP), `generation` and
`queries` (the two sides of the port), and `watch`, which checks if the server is reachable and
what it can do. The pure modules are `health`, which decides when to check, and `meter`, which
measures speed.
"""
