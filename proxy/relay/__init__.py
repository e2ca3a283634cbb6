"""proxy/relay"""
