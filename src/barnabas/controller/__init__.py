"""The controller: the one writer of the cluster's metadata."""
