"""The sections of the experts page."""
