"""Where the time of a training goes: trace, cost model, timeline."""
