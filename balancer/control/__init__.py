"""The desired state: which models the fleet should serve, and which agent is assigned which model.

Pure. `desired_state` is what operators desire. `placement` chooses agents. `rollout` decides which
changes may happen now. `controller` has a method for each event and returns orders.
"""
