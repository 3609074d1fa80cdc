"""Several balancers over one store: what each makes of the others' news, and who leads.

May import: the store with its peers and news. Comes in: the daemon, and management to tell news.
"""
