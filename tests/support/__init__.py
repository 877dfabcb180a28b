"""Helpers of the tests: drivers and worlds, crowds of callers, real servers, the peer package."""
