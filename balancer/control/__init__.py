"""Desired state: which models the fleet should serve, and which agent is assigned what.

Pure. `desired_state` is what operators desire; `placement` chooses agents; `rollout` says which
change may happen now; `controller` has a method for each event and returns orders.
"""
