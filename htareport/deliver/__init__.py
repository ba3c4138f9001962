"""Delivers reports: mail by SMTP, comments on pull and merge requests, an index page over many runs.

Architecture invariant: this is where htareport speaks to other machines, and only when asked to. Whatever can be wrong
is checked before a connection is made; no password or token stands in a message, a log or a file.
"""
