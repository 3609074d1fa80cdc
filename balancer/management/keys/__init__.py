"""`/api/v1/keys`: operators list, make, revoke and rotate access keys.

May import: `balancer.access`, what APIs share. Comes in: `management`.
"""
