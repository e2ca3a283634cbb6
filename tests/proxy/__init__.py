"""tests/proxy"""
