"""Components of our own: what must repaint in the browser at once, or show text that no parser may touch."""
