"""A fleet on paper: the balancer's own core, with simulated agents and clients, in virtual time."""
