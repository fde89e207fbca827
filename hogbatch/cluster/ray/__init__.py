"""Servers as actors of Ray, which places them on machines and starts them again elsewhere."""
