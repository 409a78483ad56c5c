"""Plans for shapes that an inference brings: filled in where they can be, better made behind."""
