"""tests/proxy/log"""
