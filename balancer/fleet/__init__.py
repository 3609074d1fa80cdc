"""The fleet: which request runs where, and which events each client gets.

Everything except `runtime`, the shell, is pure: no clock, socket or task. `core` composes
`requests` (queue, slots, a request's life) and `queries` (embeddings, rankings, tokens). The files
here have what both share: agents (`registry`), models, deadlines, limits and views.
"""
