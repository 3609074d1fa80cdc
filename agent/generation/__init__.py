"""Generation: takes neutral requests from a balancer's connection, and returns items.

`link` knows only `port`. The local side connects chat and engine. It prepares requests (template,
tokens, grammar, sampling) on its own threads, turns the engine's tokens into items, and answers
queries. `active_requests` is its pure core and `local_generation` the shell. `answers` turns
tokens into items. A failure of one request ends only that request.
"""
