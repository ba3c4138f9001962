"""Rows of one rank, as reading gives them and `htareport.rank` takes them; and what Kineto's names mean."""
