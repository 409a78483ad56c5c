"""Writers: networks to model files."""
