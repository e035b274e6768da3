"""Commands killed, starved and repeated in processes of their own: `make kill MINUTES=n`."""
