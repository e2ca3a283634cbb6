"""tests/agents"""
