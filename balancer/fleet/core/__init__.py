"""The composed core: one method for each event of clients, agents and time.

`fleet` takes every event and says which part it concerns. `state` is what the parts share,
`admission` says who is let in, within the limits that `limiter` counts, `membership` lets agents in
and out, and `steering` decides which models run where. `fleet_views` reads what others see.
"""
