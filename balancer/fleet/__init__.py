"""The fleet: which request runs where, and which events each client gets.

Pure: no clock, socket or task, except in `runtime`, the shell. `core` composes `requests` (queue,
slots, a request's life) and `queries` (embeddings, rankings, tokens). The files here have what
these share: agents (`registry`), models, deadlines, limits and views.
"""
