"""Studies that settle a default, each a module one can run again."""
