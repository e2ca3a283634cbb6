"""Hostile upstreams and clients before a real burnish: what they cost it and its other clients."""
