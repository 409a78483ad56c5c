"""What models that were learned from tables compute: decision trees, and support vectors."""
