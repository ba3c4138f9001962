"""Events as HTA sees them: traces as frames, filters, call stacks, timelines, execution traces."""
