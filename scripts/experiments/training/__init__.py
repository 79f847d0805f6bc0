"""What trainings on images and text share: tasks, the loop over epochs, runs, commands."""
