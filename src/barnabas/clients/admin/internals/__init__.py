"""The internals of the admin client; not for applications."""
