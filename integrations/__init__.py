"""What it takes to meet a repository: extraction, conventions, patches, its own tests."""
