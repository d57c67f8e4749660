"""Coordinators of groups and transactions."""
