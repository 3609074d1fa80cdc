"""The other side of the generation port: requests go on to an OpenAI-compatible server.

`protocol` is the language of such servers. Here are the shells: `client` (HTTP), `generation` and
`queries` (the two sides of the port), `watch` (which keeps checking whether the server is there and
what it can do); and the pure `health` and `meter`, which say when to check and how fast it is.
"""
