"""The verbs of the package: dumps and loads, save and open, inspect and verify, diff, profile."""
