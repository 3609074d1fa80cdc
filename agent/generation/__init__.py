"""From a neutral request to neutral items: where chat and engine meet.

Lives here: preparing a request (template, tokens, grammar, sampling) on threads of its own, and
turning the engine's tokens into the items that a balancer gets.
May import: `chat` and `engine`; nothing of sockets.
Comes in: `link` and the daemon.
"""
