"""What analyses, rules and output formats have in common: options that can be set, and how they are found."""
