"""What synth is measured on: targets of serving engines, and small references beside them."""
