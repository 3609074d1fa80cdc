"""The port between a balancer's link and what generates: a neutral request in, items out, cancel.

`port` is all that `link` knows. The local side puts chat and engine together: it prepares requests
(template, tokens, grammar, sampling) on threads of its own, turns the engine's tokens into items,
and answers queries. `active_requests` is its pure core and `local_generation` the shell. `answers`
are what becomes of the tokens. Whatever goes wrong for one request ends that request alone.
"""
