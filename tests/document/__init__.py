"""Every key and every metric of the scheduler-nodes document, each seen to have its effect."""
