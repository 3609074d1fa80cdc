"""The heart of the balancer: queue, slots, exchanges and agents as pure cores, one shell."""
