"""What is allowed and what is good enough: models of the policy and the gates that apply it."""
