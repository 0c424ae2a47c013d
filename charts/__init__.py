"""Pure functions from a recorded run to a figure, its table and its sentence. No torch, no Streamlit."""
