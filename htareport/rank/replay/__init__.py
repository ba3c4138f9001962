"""The replay of one rank: its program of launches, waits and collectives, and changes of it."""
