"""Reproduction of the papers and studies: tables, controls, baselines, experiments. Uses calirare alone."""
