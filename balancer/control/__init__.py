"""The desired state: which models the fleet should serve, and which agent is assigned which model.

All modules are pure. `desired_state` is the state that operators want. `placement` chooses agents.
`rollout` decides which changes may happen now. `controller` has a method for each event and
returns orders.
"""
