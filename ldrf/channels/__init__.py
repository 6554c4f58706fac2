"""Where channels go in a traced network: one walk, and one rule for each operator. Imports runtime and tracing."""
