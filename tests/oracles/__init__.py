"""Other implementations of the protocol that our code is tested against."""
