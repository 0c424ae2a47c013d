"""The lesson: a whole generation in short stations, on a recorded run of the teaching model."""
