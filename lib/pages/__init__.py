"""What is generated to be read: README.md and docs/, the page of results."""
