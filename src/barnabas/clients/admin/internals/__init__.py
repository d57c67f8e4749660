"""How the admin client works inside; nothing here is for applications."""
