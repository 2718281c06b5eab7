"""Graph to groups of ops, one kernel each, with a reason for every refusal."""
