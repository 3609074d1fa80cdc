"""All balancers of an agent: which addresses their names have, and a connection to each."""
