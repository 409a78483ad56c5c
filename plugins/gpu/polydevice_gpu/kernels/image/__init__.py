"""Images: colours and sizes."""
