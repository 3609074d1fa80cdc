"""Requests that take a slot: the life of each request, and the progress that clients are told.

`requests` has one method for each event. `dispatch` decides which agent gets which request.
"""
