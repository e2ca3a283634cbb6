"""tests/proxy/feedback"""
