"""Engines that serve adapter versions: one protocol (base), one host per engine."""
