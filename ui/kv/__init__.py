"""The sections of the KV cache page."""
