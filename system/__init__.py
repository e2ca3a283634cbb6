"""The machine: its files, memory and processors, and child processes. Imports nothing of burnish."""
