"""The composed core: one method for each event of clients, agents and time.

`fleet` takes events and says which part each concerns; `operations` takes those of operators, and
`fleet_clock` that of time. `state` is what the parts share,
`membership` lets agents in and out, `agent_output` takes what they generate, and `fleet_views` is
what others see. A further part, such as one that decides which models run where, is another file
over the same `state`.
May import: `fleet`, `fleet/requests`, `fleet/queries`. Comes in: `runtime`, the daemon.
"""
