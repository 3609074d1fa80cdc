"""TLS on the balancer's ports: certificates that may change, and the layer between TCP and HTTP.

`exposure` says when a port may be opened to other hosts at all.
"""
