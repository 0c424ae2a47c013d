"""The memory calculator's page: what is asked, its controls, its charts, examples and published figures."""
