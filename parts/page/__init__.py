"""The page for browsers: its files, and the routes that only the page uses."""
