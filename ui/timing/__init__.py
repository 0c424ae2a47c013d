"""Sections of the page on prefill and decode: a run's times, sweeps on this machine, the roofline."""
