"""The documentation site: pages made from the code, and what mkdocs needs to place them."""
