"""What ran, and is the win worth anybody's time? Counting calls and kernels; triviality."""
