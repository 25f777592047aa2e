"""What is generated to be read: the blocks of README.md, the page of results, the overview."""
