"""The page for browsers: its files, and the routes that only the page uses."""

from burnish.proxy.page.login import login_routes
from burnish.proxy.page.routes import page_routes

__all__ = ["login_routes", "page_routes"]
