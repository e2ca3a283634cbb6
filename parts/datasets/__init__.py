"""Data in and out: records, datasets for other trainers, and the exports of other programs."""

from burnish.parts.datasets.routes import record_routes

__all__ = ["record_routes"]
