"""The learning bench: simulated users with hidden preferences, everything through a running burnish.

Imported as ``burnish.bench``; ``burnish bench learning`` runs it.
"""
