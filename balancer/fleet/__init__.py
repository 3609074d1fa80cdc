"""The balancer's core: which request runs where, and which events each client gets.

Pure: no clock, socket or task. `core` composes `requests` (queue, slots, a request's life) and
`queries` (embeddings, rankings, tokens) over what all share: agents (`registry`), `models`,
deadlines, limits and views. `runtime` is the shell around it.
"""
