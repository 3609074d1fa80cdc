"""What balancers over one store tell one another, and how a transaction tells it."""
