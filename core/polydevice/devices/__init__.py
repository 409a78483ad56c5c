"""Which devices there are: plugins found, imported and asked."""
