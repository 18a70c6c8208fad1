"""The verbs of the command `penstock`, one module each; see penstock/cli.py."""
