"""The history under load: pages over millions of ended tasks, and each end stored once whatever is killed."""
