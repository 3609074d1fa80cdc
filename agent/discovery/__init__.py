"""Finds all balancers of an agent: resolves their names, and keeps a connection to each."""
