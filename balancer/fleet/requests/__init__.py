"""Requests that take a slot: what happens to them, one request's life, what those who wait hear.

`requests` takes events. Which request goes to which agent is decided in `dispatch`.
"""
