"""Several balancers over one store, or several workers of one: who leads, what others have."""
