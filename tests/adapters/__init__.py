"""tests/adapters"""
