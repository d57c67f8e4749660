"""Coordinators: who keeps track of groups, of transactions, and of what their members have done."""
