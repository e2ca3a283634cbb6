"""adapters/hosts"""
