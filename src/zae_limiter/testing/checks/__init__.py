"""The checks of `testing.conformance`, one file for each role of a store."""
