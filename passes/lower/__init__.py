"""Group to kernel of loop IR: one function for each kind of op."""
