"""What the trainings of these experiments share: commands, sessions, what is kept of them."""
