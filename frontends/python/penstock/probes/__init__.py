"""What this machine can do, found out by trying it.

Every probe returns findings and never raises: a call that a container forbids is a finding too.
They use the C library only, so that they tell the truth also where libpenstock cannot be loaded.
"""
