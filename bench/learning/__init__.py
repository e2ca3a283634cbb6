"""The learning bench: simulated users with hidden preferences, everything through a running burnish.

``python -m bench.learning`` runs it, from a checkout.
"""
