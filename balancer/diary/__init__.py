"""The diary: events of the fleet and the hosts it has had, kept in the store."""
