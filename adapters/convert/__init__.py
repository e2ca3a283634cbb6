"""adapters/convert"""
