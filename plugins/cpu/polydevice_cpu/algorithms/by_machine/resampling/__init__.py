"""Elements read between others: at points, by filters, along an axis."""
