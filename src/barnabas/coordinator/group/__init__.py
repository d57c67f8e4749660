"""The group coordinator: groups of both consumer protocols, and their committed offsets."""
