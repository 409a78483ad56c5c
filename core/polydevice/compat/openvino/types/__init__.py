"""Values that describe others: element types, shapes, layouts and notes."""
