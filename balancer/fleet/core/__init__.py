"""The core of the fleet: one method for each event of clients, agents and time.

`fleet` takes every event and passes it to the parts. `state` has the data that the parts share.
`admission` decides which requests are accepted, within the limits that `limiter` counts.
`membership` adds and removes agents. `steering` decides which models run where. `fleet_views` has
views for readers.
"""
