"""Requests that need a slot: the state of each request, and the progress that clients see.

`requests` has one method for each event. `dispatch` decides which agent runs each request.
"""
