"""What people would install instead, each behind the same three verbs; see `interface`."""
