"""Everything that touches Streamlit, except the pages' own scripts; and the run worker, which must not."""
