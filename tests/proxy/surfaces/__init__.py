"""tests/proxy/surfaces"""
