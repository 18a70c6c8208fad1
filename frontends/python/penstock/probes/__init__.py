"""Probes that find out what this machine can do, by trying it.

Every probe returns findings and never raises: a call that a container forbids is a finding too.
Probes use the C library only, so they work even if libpenstock cannot be loaded.
"""
