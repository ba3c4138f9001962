"""The facts of one rank, one file a domain, each computed once."""
