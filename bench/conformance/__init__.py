"""The vendors' own test suites, directly and through burnish: every test must end the same way."""
