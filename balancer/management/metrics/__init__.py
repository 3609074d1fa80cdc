"""What Prometheus scrapes: requests and latencies, the fleet as it is, the balancer's own health.

May import: the fleet's views and records. Comes in: `management` and the daemon.
"""
