"""Graphs larger than memory would like: mapped files, streamed evaluation, several processes, a cost model."""
