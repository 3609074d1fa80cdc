"""Several balancers over one store: what each makes of the others' news, and who leads."""
