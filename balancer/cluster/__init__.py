"""Several balancers over one store, or several workers of one: which one leads, and what the others
have."""
