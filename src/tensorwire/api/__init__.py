"""The main functions of the package: dumps, loads, save, load, open, inspect, verify, diff, profile."""
