"""What a write of tracking must satisfy against what is stored."""
