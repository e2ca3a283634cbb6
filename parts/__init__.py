"""Optional rooms of burnish. Each is a folder here and a line in a list."""
