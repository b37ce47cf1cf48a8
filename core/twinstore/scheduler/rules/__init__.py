"""What every write must satisfy, whichever driver performs it: pure functions of stored and new state."""
