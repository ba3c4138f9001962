"""What a rule is, evaluating rules on a rank, and findings from the evidence of all ranks."""
