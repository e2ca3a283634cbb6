"""Turning a version's PEFT files into what an engine can read, and back."""
