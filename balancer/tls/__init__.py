"""TLS on the balancer's ports: certificates that may change, and the layer between TCP and HTTP.

`check_exposure` in `ports.py` decides whether a port may be opened to other hosts.
"""
