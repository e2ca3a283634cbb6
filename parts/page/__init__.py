"""The page for browsers: its files, and the routes that only the page uses."""

from burnish.parts.page.login import login_routes
from burnish.parts.page.openapi import openapi_route
from burnish.parts.page.routes import page_routes

__all__ = ["login_routes", "openapi_route", "page_routes"]
