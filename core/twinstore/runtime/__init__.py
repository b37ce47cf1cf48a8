"""What a running process needs whatever it stores: forks, cancelled calls, secrets, its log."""
