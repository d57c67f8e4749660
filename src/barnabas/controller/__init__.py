"""The controller: the only writer of the cluster's metadata."""
