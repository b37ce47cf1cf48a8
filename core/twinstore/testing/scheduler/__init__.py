"""What the contract kit knows of the scheduler and cannot derive."""
