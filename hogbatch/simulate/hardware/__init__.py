"""Descriptions of servers, and what a batch costs on them."""
