"""The main functions of the package: dumps, loads, save, open, inspect, verify, diff, profile."""
