"""The sections of the Sampling lab page."""
