"""What makes the documentation: the site, the reference from the code, pictures from kept results."""
