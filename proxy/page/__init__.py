"""The page for browsers: its files, and the routes that only the page uses."""

from burnish.proxy.page.routes import page_routes

__all__ = ["page_routes"]
